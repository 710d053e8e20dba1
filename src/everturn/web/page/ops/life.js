// The life of one message: what became of it in a sentence, then everything that happened, with the time between.
import { $, copyButton, el } from '../dom.js';
import { ask } from '../line.js';
import { plainId } from './lists.js';
import { moment, span, verdict } from './words.js';

const KINDS = { in: 'message', turn: 'turn', step: 'step', tool: 'tool', out: 'reply', trouble: 'trouble' };
const GAP_S = 1;

export class Life {
  constructor() {
    this.shape = '';
    $('find').addEventListener('submit', (event) => {
      event.preventDefault();
      const id = $('find-id').value.trim();
      if (id) location.hash = `life=${encodeURIComponent(id)}`;
    });
  }

  async load(id) {
    this.id = id;
    if (!id) return null;
    if ($('find-id').value !== id && document.activeElement !== $('find-id')) $('find-id').value = id;
    const words = encodeURIComponent(id);
    if (this.near?.id !== id) this.near = { id, messages: holding(id, (await ask(`/ops/api/inbox?q=${words}&limit=20`)).messages) };
    return ask(`/ops/api/explain?message=${words}`);
  }

  show(found) {
    const shape = JSON.stringify([this.id, found?.lives, found?.timeline]);
    if (shape === this.shape) return;
    this.shape = shape;
    if (!found) $('lives').replaceChildren(el('p', { class: 'faint' }, 'Write who wrote it, some of its words, or its id; or choose “What happened” in any list. Messages in the chat have it, too.'));
    else if (!found.lives.length && this.near.messages.length) $('lives').replaceChildren(el('ol', { class: 'plain' }, ...this.near.messages.map(drawFound)));
    else if (!found.lives.length) $('lives').replaceChildren(el('p', { class: 'verdict look' }, `No message is known by “${this.id}”. The newest 5,000 are looked through; ids are forgotten 30 days after their message.`));
    else $('lives').replaceChildren(...found.lives.map((life) => drawLife(life, found.now ?? Date.now() / 1000, this.near.messages.find((each) => each.message === life.id))));
  }
}

/** Those that hold the words: in who wrote, where, the id or what was said. */
export const holding = (words, messages) => messages.filter((each) => [each.who, each.chat, each.message, each.text].some((text) => String(text ?? '').toLowerCase().includes(words.toLowerCase())));

function drawFound(each) {
  return el('li', {}, el('a', { href: `#life=${encodeURIComponent(each.message)}` }, each.text || '(no words)'),
    el('span', { class: 'faint block' }, `${each.who || each.chat} · ${each.platform} · ${moment(each.accepted_at, Date.now() / 1000)}`));
}

function drawLife(life, now, message) {
  const { tone, words } = verdict(life);
  const id = plainId(life.id);
  return el('article', { class: 'card life' },
    el('h3', {}, words.length ? el('span', { class: `verdict ${tone}` }, words) : id),
    message ? el('p', { class: 'quote' }, `${message.who || message.chat}: ${message.text}`) : null,
    el('p', { class: 'faint' }, `Message ${id} from ${life.platform}, conversation ${life.key} `, copyButton(() => id, 'Copy the id')),
    el('ol', { class: 'timeline' }, ...timeline(life.timeline ?? [], now)));
}

/** The time between two things is drawn when it is long enough to be asked about. */
function timeline(lines, now) {
  return lines.map((line, n) => {
    const before = lines.slice(0, n).findLast((each) => each.at !== null && each.at !== undefined);
    const gap = before && line.at ? line.at - before.at : 0;
    return el('li', { class: line.kind },
      el('span', { class: 'at' }, line.at ? el('time', { datetime: new Date(line.at * 1000).toISOString() }, moment(line.at, now, true)) : 'now', gap >= GAP_S ? el('span', { class: 'faint block' }, `${span(gap)} later`) : ''),
      el('span', { class: 'what' }, el('span', { class: 'heard' }, `${KINDS[line.kind] ?? ''}: `), line.what, line.took_s >= 0.1 ? el('span', { class: 'faint' }, ` took ${span(line.took_s)}`) : '',
        line.detail && !line.what.includes(line.detail) ? el('span', { class: 'detail' }, String(line.detail)) : ''));
  });
}
