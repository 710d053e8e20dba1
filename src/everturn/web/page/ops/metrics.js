// Metrics over time: how many turns, how fast, and what failed.
import { $ } from '../dom.js';
import { ask } from '../line.js';
import { Chart, ticks, wholeTicks } from './chart.js';
import { CHARTS, PERIODS, moment, short, span, total } from './texts.js';

const BAR_S = { 24: 3600, 168: 21_600, 720: 86_400 };
const seconds = (value) => (value === null || value === undefined ? '–' : span(value));

/** A chart of these fields, with its texts. */
function chart(name, fields, more) {
  const { title, about, ...labels } = CHARTS[name];
  return new Chart($('charts'), { title, about, series: fields.map((each) => ({ name: each, label: labels[each] })), ...more });
}

export class Metrics {
  constructor() {
    const bars = { kind: 'bars', say: short, ticks: wholeTicks };
    this.turns = chart('turns', ['answered', 'stopped', 'failed'], bars);
    this.speed = chart('speed', ['p50_s', 'p95_s'], { kind: 'lines', say: seconds, ticks: (most) => ticks(Math.max(most, 1)) });
    this.wrong = chart('wrong', ['failed', 'interrupted', 'dead'], bars);
    this.tokens = chart('tokens', ['tokens'], bars);
  }

  async load(hours) {
    this.hours = PERIODS[hours] ? Number(hours) : 24;
    return ask(`/ops/api/trends?hours=${this.hours}`);
  }

  show(found) {
    const { now, buckets, step_s: step } = found;
    const label = this.hours <= 24 ? clockTime : dayOf;
    const bar = BAR_S[this.hours];
    const when = (length) => (at) => (length >= 86_400 ? dayOf(at) : CHARTS.range(moment(at, now), moment(at + length, at + length)));
    for (const each of [this.turns, this.wrong, this.tokens]) each.show(buckets, label, when(bar), bar);
    this.speed.show(buckets, label, when(step));
    const text = total(buckets, PERIODS[this.hours]);
    if ($('total').textContent !== text) $('total').textContent = text;
    for (const link of $('hours').querySelectorAll('a')) link.toggleAttribute('aria-current', link.hash === `#metrics=${this.hours}`);
  }
}

const clockTime = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
const dayOf = (at) => new Date(at * 1000).toLocaleDateString([], { day: 'numeric', month: 'short' });
