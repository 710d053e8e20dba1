// Small charts, drawn as SVG by hand. The geometry is pure; the drawing follows the width it is given.
import { el } from '../dom.js';
import { CHARTS } from './texts.js';

const CHAR_PX = 6.4;
const SPACE = { left: 46, right: 8, top: 8, bottom: 22 };
const HEIGHT = 170;
const EVERY = [1, 2, 4, 8, 12, 16, 24, 28, 32, 48, 96]; // whole hours or days for the buckets we get

/** Round numbers for an axis from nothing to `most`; the last is at least as large as `most`. */
export function ticks(most, wanted = 4) {
  const rough = Math.max(most, 1e-9) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough - 1e-12);
  const found = [];
  for (let n = 0; n * step < most + step * 0.999; n += 1) found.push(Number((n * step).toPrecision(12)));
  return found;
}

/** Whole numbers where things are counted. */
export const wholeTicks = (most) => (most < 4 ? Array.from({ length: Math.max(1, Math.ceil(most)) + 1 }, (_, n) => n) : ticks(most));

/** Which buckets have a label below: as many as there is room for, at even distances. */
export function labelled(buckets, width, room = 62) {
  const least = (buckets * room) / Math.max(width, 1);
  const every = EVERY.find((each) => each >= least) ?? Math.ceil(least);
  return Array.from({ length: Math.ceil(buckets / every) }, (_, n) => n * every);
}

/** The counts of an hour or a day together: few bars are read at a glance. `shift` is how far our clocks are from UTC. */
export function summed(rows, names, length, shift = 0) {
  const bars_ = new Map();
  for (const row of rows) {
    const at = Math.floor((row.at + shift) / length) * length - shift;
    const bar = bars_.get(at) ?? { at, ...Object.fromEntries(names.map((name) => [name, 0])) };
    for (const name of names) bar[name] += row[name] ?? 0;
    bars_.set(at, bar);
  }
  return [...bars_.values()];
}

/** Stacked bars: a rectangle for each value that is not zero. */
export function bars(rows, names, box, most) {
  const wide = box.width / Math.max(rows.length, 1);
  return rows.flatMap((row, n) => {
    let below = 0;
    return names.flatMap((name) => {
      const value = row[name] ?? 0;
      const height = (value / most) * box.height;
      below += height;
      return value ? [{ n, name, x: box.x + n * wide + wide * 0.12, y: box.y + box.height - below, width: wide * 0.76, height }] : [];
    });
  });
}

/** A line through the values that are there; it breaks where a value is missing. A value alone is a dot. */
export function path(rows, name, box, most) {
  const wide = box.width / Math.max(rows.length, 1);
  const there = (n) => rows[n] !== undefined && rows[n][name] !== null && rows[n][name] !== undefined;
  const drawn = { line: '', dots: [] };
  rows.forEach((row, n) => {
    if (!there(n)) return;
    const [x, y] = [round(box.x + (n + 0.5) * wide), round(box.y + box.height - (row[name] / most) * box.height)];
    if (there(n - 1)) drawn.line += `L${x} ${y}`;
    else if (there(n + 1)) drawn.line += `M${x} ${y}`;
    else drawn.dots.push({ x, y });
  });
  return drawn;
}
const round = (n) => Math.round(n * 10) / 10;

function svg(tag, attributes = {}, ...kids) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...kids);
  return node;
}

export class Chart {
  /** `series`: {name, label}; `kind`: bars or lines; `say(value)` writes a value; `label(at)` and `when(at)` write times. */
  constructor(place, { title, about, series, kind, say, ticks: axis }) {
    Object.assign(this, { title, series, kind, say, axis, rows: [], chosen: null });
    this.legend = el('ul', { class: 'legend' }, ...series.map((each) => el('li', { class: each.name }, each.label)));
    this.picture = svg('svg', { class: kind, 'aria-hidden': 'true', height: HEIGHT });
    this.tip = el('div', { class: 'tip', 'aria-hidden': 'true', hidden: true });
    this.stage = el('div', { class: 'stage', role: 'slider', tabindex: '0', 'aria-label': CHARTS.choose(title), 'aria-valuemin': '0', 'aria-valuemax': '0', 'aria-valuenow': '0', 'aria-valuetext': '' }, this.picture, this.tip);
    this.numbers = el('div', { class: 'scroll-x', tabindex: '0', role: 'region', 'aria-label': CHARTS.tableOf(title) });
    this.more = el('details', { class: 'numbers' }, el('summary', {}, CHARTS.asTable), this.numbers);
    this.more.addEventListener('toggle', () => this.table());
    place.append(el('section', { class: 'chart' }, el('h3', {}, title), el('p', { class: 'faint' }, about), this.legend, this.stage, this.more));
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.stage);
  }

  show(found, label, when, length) {
    const rows = this.kind === 'bars' ? summed(found, this.names, length, new Date().getTimezoneOffset() * -60) : found;
    const shape = JSON.stringify(rows);
    if (shape === this.shape) return;
    Object.assign(this, { shape, rows, label, when });
    this.chosen = this.chosen === null ? null : Math.min(this.chosen, rows.length - 1);
    this.stage.setAttribute('aria-valuemax', String(Math.max(0, rows.length - 1)));
    this.say_();
    this.draw();
    this.table();
  }

  get names() {
    return this.series.map((each) => each.name);
  }

  most() {
    const high = (row) => (this.kind === 'bars' ? this.names.reduce((sum, name) => sum + (row[name] ?? 0), 0) : Math.max(...this.names.map((name) => row[name] ?? 0)));
    return Math.max(0, ...this.rows.map(high));
  }

  draw() {
    const width = this.stage.clientWidth;
    if (!width || !this.rows.length) return;
    const steps = this.axis(this.most() || 1);
    const most = steps.at(-1);
    const left = Math.max(SPACE.left, 8 + CHAR_PX * Math.max(...steps.map((value) => this.say(value).length)));
    this.box = { x: left, y: SPACE.top, width: width - left - SPACE.right, height: HEIGHT - SPACE.top - SPACE.bottom };
    const level = (value) => round(this.box.y + this.box.height - (value / most) * this.box.height) + 0.5;
    this.picture.setAttribute('width', String(width));
    this.picture.replaceChildren(
      ...steps.flatMap((value) => [svg('line', { class: 'grid', x1: left, x2: width - SPACE.right, y1: level(value), y2: level(value) }), svg('text', { x: left - 6, y: level(value) + 4, 'text-anchor': 'end' }, this.say(value))]),
      ...this.times(width), ...this.shapes(most), this.mark());
    this.place();
  }

  times(width) {
    const wide = this.box.width / this.rows.length;
    return labelled(this.rows.length, this.box.width).map((n) => [n, this.box.x + (n + 0.5) * wide]).filter(([, x]) => x < width - 28)
      .map(([n, x]) => svg('text', { x: round(x), y: HEIGHT - 5, 'text-anchor': 'middle' }, this.label(this.rows[n].at)));
  }

  shapes(most) {
    if (this.kind === 'bars') return bars(this.rows, this.names, this.box, most).map(({ name, x, y, width, height }) => svg('rect', { class: name, x: round(x), y: round(y), width: round(width), height: Math.max(1, round(height)), rx: 1 }));
    return this.names.flatMap((name) => {
      const { line, dots } = path(this.rows, name, this.box, most);
      return [svg('path', { class: name, d: line, fill: 'none' }), ...dots.map(({ x, y }) => svg('circle', { class: name, cx: x, cy: y, r: 2.5 }))];
    });
  }

  mark() {
    this.line = svg('line', { class: 'mark', y1: this.box.y, y2: this.box.y + this.box.height, visibility: 'hidden' });
    return this.line;
  }

  listen() {
    const to = (event) => this.choose(Math.floor(((event.clientX - this.stage.getBoundingClientRect().left - (this.box?.x ?? 0)) / (this.box?.width || 1)) * this.rows.length));
    this.stage.addEventListener('pointermove', to);
    this.stage.addEventListener('pointerdown', to);
    this.stage.addEventListener('pointerleave', () => { if (document.activeElement !== this.stage) this.choose(null); });
    this.stage.addEventListener('focus', () => this.choose(this.chosen ?? this.rows.length - 1));
    this.stage.addEventListener('blur', () => this.choose(null));
    this.stage.addEventListener('keydown', (event) => {
      const move = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -6, PageUp: 6, Home: -1e6, End: 1e6 }[event.key];
      if (event.key === 'Escape') this.choose(null);
      if (!move) return;
      event.preventDefault();
      this.choose((this.chosen ?? this.rows.length - 1) + move);
    });
  }

  choose(n) {
    this.chosen = n === null || !this.rows.length ? null : Math.max(0, Math.min(this.rows.length - 1, n));
    this.say_();
    this.place();
  }

  say_() {
    const n = this.chosen ?? this.rows.length - 1;
    const row = this.rows[n];
    this.stage.setAttribute('aria-valuenow', String(Math.max(0, n)));
    this.stage.setAttribute('aria-valuetext', row ? `${this.when(row.at)}: ${this.series.map((each) => `${each.label} ${this.say(row[each.name] ?? (this.kind === 'bars' ? 0 : null))}`).join(', ')}` : CHARTS.empty);
  }

  place() {
    const row = this.chosen === null ? null : this.rows[this.chosen];
    this.tip.hidden = !row;
    if (!this.line || !this.box) return;
    this.line.setAttribute('visibility', row ? 'visible' : 'hidden');
    if (!row) return;
    const x = this.box.x + (this.chosen + 0.5) * (this.box.width / this.rows.length);
    this.line.setAttribute('x1', round(x));
    this.line.setAttribute('x2', round(x));
    this.tip.replaceChildren(el('strong', {}, this.when(row.at)), ...this.series.map((each) => el('span', { class: each.name }, `${each.label}: ${this.say(row[each.name] ?? (this.kind === 'bars' ? 0 : null))}`)));
    this.tip.style.left = `${Math.max(0, Math.min(x - this.tip.offsetWidth / 2, this.stage.clientWidth - this.tip.offsetWidth))}px`;
  }

  table() {
    if (!this.more.open) return;
    const head = el('tr', {}, el('th', { scope: 'col' }, CHARTS.from), ...this.series.map((each) => el('th', { scope: 'col' }, each.label)));
    const body = this.rows.map((row) => el('tr', {}, el('th', { scope: 'row' }, this.when(row.at)), ...this.series.map((each) => el('td', {}, this.say(row[each.name] ?? (this.kind === 'bars' ? 0 : null))))));
    this.numbers.replaceChildren(el('table', {}, el('caption', { class: 'heard' }, this.title), el('thead', {}, head), el('tbody', {}, ...body)));
  }
}
