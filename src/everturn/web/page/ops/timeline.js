// The timeline of one message: its outcome in a sentence, then everything that happened to it, with the time between.
import { $, copyButton, el } from '../dom.js';
import { ask } from '../line.js';
import { plainId } from './lists.js';
import { LIST, TIMELINE, moment, verdict } from './texts.js';

const GAP_S = 1;

export class Timeline {
  constructor() {
    this.shape = '';
    $('find').addEventListener('submit', (event) => {
      event.preventDefault();
      const id = $('find-id').value.trim();
      if (id) location.hash = `message=${encodeURIComponent(id)}`;
    });
  }

  async load(id) {
    this.id = id;
    if (!id) return null;
    if ($('find-id').value !== id && document.activeElement !== $('find-id')) $('find-id').value = id;
    const query = encodeURIComponent(id);
    if (this.near?.id !== id) this.near = { id, messages: holding(id, (await ask(`/ops/api/inbox?q=${query}&limit=20`)).messages) };
    return ask(`/ops/api/explain?message=${query}`);
  }

  show(found) {
    const shape = JSON.stringify([this.id, found?.messages]);
    if (shape === this.shape) return;
    this.shape = shape;
    if (!found) $('timelines').replaceChildren(el('p', { class: 'faint' }, TIMELINE.hint));
    else if (!found.messages.length && this.near.messages.length) $('timelines').replaceChildren(el('ol', { class: 'plain' }, ...this.near.messages.map(drawFound)));
    else if (!found.messages.length) $('timelines').replaceChildren(el('p', { class: 'verdict look' }, TIMELINE.none(this.id)));
    else $('timelines').replaceChildren(...found.messages.map((each) => drawMessage(each, found.now ?? Date.now() / 1000, this.near.messages.find((near) => near.message === each.id))));
  }
}

/** The messages whose sender, chat, id or text holds the query. */
export const holding = (query, messages) => messages.filter((each) => [each.sender, each.chat, each.message, each.text].some((text) => String(text ?? '').toLowerCase().includes(query.toLowerCase())));

function drawFound(each) {
  return el('li', {}, el('a', { href: `#message=${encodeURIComponent(each.message)}` }, each.text || LIST.noText),
    el('span', { class: 'faint block' }, `${each.sender || each.chat} · ${each.platform} · ${moment(each.accepted_at, Date.now() / 1000)}`));
}

function drawMessage(message, now, near) {
  const { tone, text } = verdict(message);
  const id = plainId(message.id);
  return el('article', { class: 'card message' },
    el('h3', {}, el('span', { class: `verdict ${tone}` }, text)),
    near ? el('p', { class: 'quote' }, `${near.sender || near.chat}: ${near.text}`) : null,
    el('p', { class: 'faint' }, TIMELINE.about(id, message.platform, message.key), copyButton(() => id, TIMELINE.copyId)),
    el('ol', { class: 'timeline' }, ...drawLines(message.timeline ?? [], now)));
}

/** The time between two lines is drawn when it is long enough to be asked about. */
function drawLines(lines, now) {
  return lines.map((line, n) => {
    const before = lines.slice(0, n).findLast((each) => each.at !== null && each.at !== undefined);
    const gap = before && line.at ? line.at - before.at : 0;
    return el('li', { class: line.kind },
      el('span', { class: 'at' }, line.at ? el('time', { datetime: new Date(line.at * 1000).toISOString() }, moment(line.at, now, true)) : TIMELINE.now, gap >= GAP_S ? el('span', { class: 'faint block' }, TIMELINE.later(gap)) : ''),
      el('span', { class: 'what' }, el('span', { class: 'heard' }, `${TIMELINE.kinds[line.kind] ?? ''}: `), line.what, line.took_s >= 0.1 ? el('span', { class: 'faint' }, TIMELINE.took(line.took_s)) : '',
        line.detail && !line.what.includes(line.detail) ? el('span', { class: 'detail' }, String(line.detail)) : ''));
  });
}
