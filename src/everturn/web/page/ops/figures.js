// Figures over time: how many turns, how fast, and what went wrong.
import { $, el } from '../dom.js';
import { ask } from '../line.js';
import { Chart, ticks, wholeTicks } from './chart.js';
import { count, moment, short, span } from './words.js';

const BAR_S = { 24: 3600, 168: 21_600, 720: 86_400 };
const NAMES = { 24: 'the last 24 hours', 168: 'the last 7 days', 720: 'the last 30 days' };
const seconds = (value) => (value === null || value === undefined ? '–' : span(value));

export class Figures {
  constructor() {
    const place = $('charts');
    this.turns = new Chart(place, {
      title: 'Turns', about: 'How many ended, and how.', kind: 'bars', say: short, ticks: wholeTicks,
      series: [{ name: 'answered', words: 'answered' }, { name: 'stopped', words: 'stopped' }, { name: 'failed', words: 'failed' }],
    });
    this.speed = new Chart(place, {
      title: 'Time to an answer', about: 'From the message to the end of its turn.', kind: 'lines', say: seconds, ticks: (most) => ticks(Math.max(most, 1)),
      series: [{ name: 'p50_s', words: 'half were faster' }, { name: 'p95_s', words: '95 of 100 were faster' }],
    });
    this.wrong = new Chart(place, {
      title: 'What went wrong', about: 'Turns that failed or were interrupted, replies not delivered.', kind: 'bars', say: short, ticks: wholeTicks,
      series: [{ name: 'failed', words: 'turns failed' }, { name: 'interrupted', words: 'interrupted' }, { name: 'dead', words: 'replies not delivered' }],
    });
    this.tokens = new Chart(place, {
      title: 'Tokens', about: 'What the models read and wrote.', kind: 'bars', say: short, ticks: wholeTicks, series: [{ name: 'tokens', words: 'tokens' }],
    });
  }

  async load(hours) {
    this.hours = NAMES[hours] ? Number(hours) : 24;
    return ask(`/ops/api/figures?hours=${this.hours}`);
  }

  show(found) {
    const { now, buckets, step_s: step } = found;
    const label = this.hours <= 24 ? clockTime : dayOf;
    const bar = BAR_S[this.hours];
    const when = (length) => (at) => (length >= 86_400 ? dayOf(at) : `${moment(at, now)} to ${moment(at + length, at + length)}`);
    for (const chart of [this.turns, this.wrong, this.tokens]) chart.show(buckets, label, when(bar), bar);
    this.speed.show(buckets, label, when(step));
    const words = total(buckets, NAMES[this.hours]);
    if ($('total').textContent !== words) $('total').textContent = words;
    for (const link of $('hours').querySelectorAll('a')) link.toggleAttribute('aria-current', link.hash === `#figures=${this.hours}`);
  }
}

const clockTime = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
const dayOf = (at) => new Date(at * 1000).toLocaleDateString([], { day: 'numeric', month: 'short' });

/** The whole time in a sentence. */
export function total(buckets, name) {
  const sum = (field) => buckets.reduce((all, each) => all + (each[field] ?? 0), 0);
  const [answered, failed, stopped, interrupted, dead, cost] = ['answered', 'failed', 'stopped', 'interrupted', 'dead', 'cost'].map(sum);
  const ended = answered + failed + stopped;
  if (!ended && !interrupted && !dead) return `Nothing happened in ${name}.`;
  const wrong = [failed && `${failed} failed`, interrupted && `${interrupted} interrupted`, dead && `${count(dead, 'reply')} not delivered`].filter(Boolean);
  return `In ${name}: ${count(ended, 'turn')}, ${answered} answered${wrong.length ? `, ${wrong.join(', ')}` : ', nothing failed'}${cost ? `, cost ${cost.toFixed(2)}` : ''}.`;
}
