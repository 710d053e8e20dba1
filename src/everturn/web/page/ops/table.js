// A table whose rows have keys: what did not change keeps its node, so nobody loses their place or their focus when it is read again.
import { $, el } from '../dom.js';
import { Choices } from './choices.js';
import { ACTION, lasting, moment } from './texts.js';

/** A time that counts: `tick` writes how long ago it is. */
export function since(at, exact = false) {
  if (at === null || at === undefined) return '–';
  const node = el('time', { datetime: new Date(at * 1000).toISOString(), 'data-since': String(at), 'data-exact': exact });
  tickOne(node);
  return node;
}

let clock = { now: Date.now() / 1000, at: performance.now(), runs: true };

/** The gateway's time, as it was in its last answer. */
export function setClock(now) {
  clock = { now, at: performance.now(), runs: true };
}

/** The page is disconnected: what is shown stays as it was. */
export function holdClock() {
  if (clock.runs) clock = { now: theirNow(), at: 0, runs: false };
}

export const theirNow = () => (clock.runs ? clock.now + (performance.now() - clock.at) / 1000 : clock.now);

function tickOne(node) {
  const now = theirNow();
  const at = Number(node.dataset.since);
  const text = lasting(now - at);
  if (node.textContent !== text) node.textContent = text;
  if (!node.title) node.title = moment(at, now, true);
}

/** Write every age that is shown. */
export function tick() {
  for (const node of document.querySelectorAll('time[data-since]')) tickOne(node);
}

export class Table {
  /** `columns`: {head, of: names of the fields it shows, draw(row) -> nodes, wide}; `choices(row)` -> {about, options}. */
  constructor(place, { caption, columns, key, empty = '', choices = null, acts = null, quiet = false }) {
    this.columns = columns;
    this.key = key;
    this.choices = choices;
    this.acts = acts;
    this.rows = new Map();
    this.data = [];
    const heads = [...columns.map((each) => each.head), ...(choices ? [ACTION.column] : [])];
    this.caption = el('caption', { class: quiet ? 'heard' : null }, caption);
    this.table = el('table', { role: 'table', class: 'rows' }, this.caption,
      el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...heads.map((head) => el('th', { role: 'columnheader', scope: 'col' }, head)))));
    this.empty = el('p', { class: 'faint' }, empty);
    this.place = $(place);
    this.table.hidden = this.empty.hidden = true; // nothing is known yet
    this.place.append(this.table, this.empty);
  }

  show(rows = this.data) {
    this.data = rows;
    const focused = document.activeElement;
    const lost = this.table.contains(focused) ? [...this.rows.values()].findIndex((node) => node.contains(focused)) : -1;
    const before = new Map(this.rows);
    this.rows = new Map();
    let place = this.table.tBodies[0] ?? null;
    for (const row of rows) {
      const key = String(this.key(row));
      const node = before.get(key) ?? this.make(key);
      before.delete(key);
      this.rows.set(key, node);
      this.update(node, row);
      if (node === place) place = place.nextSibling;
      else this.table.insertBefore(node, place);
    }
    for (const node of before.values()) node.remove();
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0 || !this.empty.textContent;
    if (lost >= 0 && !document.contains(focused)) this.land(lost);
  }

  make(key) {
    const row = el('tr', { role: 'row' });
    const node = el('tbody', { role: 'rowgroup', 'data-key': key }, row); // its own group: a question has a line of its own
    node.cells_ = this.columns.map((each) => el('td', { role: 'cell', class: each.wide ? 'wide' : null, 'data-head': each.head }));
    row.append(...node.cells_);
    if (this.choices) {
      node.choices = new Choices(this.acts, this.columns.length + 1);
      row.append(el('td', { role: 'cell', class: 'acts' }, node.choices.node));
    }
    return node;
  }

  update(node, row) {
    this.columns.forEach((column, n) => {
      const cell = node.cells_[n];
      const shape = JSON.stringify(column.of.map((name) => row[name]));
      if (cell.shape === shape) return;
      cell.shape = shape;
      cell.replaceChildren(...[column.draw(row)].flat().filter((kid) => kid !== null && kid !== undefined));
    });
    if (this.choices) {
      const { about, options } = this.choices(row);
      node.choices.show(about, options);
    }
  }

  /** Where the focus goes when its row is gone: the row that took its place, or the head of the table. */
  land(n) {
    const rows = [...this.rows.values()];
    const next = rows[Math.min(n, rows.length - 1)]?.querySelector('button:enabled, a');
    if (next) next.focus();
    else (this.place.closest('section')?.querySelector('h2') ?? document.querySelector('main h1')).focus();
  }
}
