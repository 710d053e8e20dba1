// The list of conversations: title, age, state; search.
import { $, age, asTitle, button, el, markCurrent } from './dom.js';
import { ask } from './line.js';
import { LIST, STATES } from './texts.js';

const QUIET_MS = 150;
const ASKED_MS = 60_000;
const NEEDS = ['dead_replies', 'outbox_unknown', 'dead_messages', 'suspended'];

export class Side {
  constructor(choose) {
    this.choose = choose;
    this.current = null;
    this.known = [];
    this.timer = null;
    this.asked = 0;
    this.lookedAt = -ASKED_MS;
    $('search').addEventListener('input', () => this.soon());
  }

  /** Read the list again in a moment; many reasons at once are one reading. */
  soon(wait = QUIET_MS) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), wait);
  }

  async read() {
    const query = $('search').value.trim();
    const number = (this.asked += 1);
    try {
      const found = await ask(`/web/conversations${query ? `?search=${encodeURIComponent(query)}` : ''}`);
      if (number === this.asked) this.show(found, query);
    } catch {
      // the banner says that the page is disconnected; the list stays as it was
    }
  }

  /** Say how much waits for the owner on the operations page; looked at now and then, and only while somebody looks here. */
  async needs() {
    if (document.hidden || performance.now() - this.lookedAt < ASKED_MS) return;
    this.lookedAt = performance.now();
    try {
      const { counts } = await ask('/ops/api/overview');
      const number = NEEDS.reduce((sum, name) => sum + (counts[name] ?? 0), 0);
      $('needs').hidden = !number;
      $('needs').textContent = number ? `${number} ` : '';
      if (number) $('needs').append(el('span', { class: 'heard' }, LIST.attention(number)));
    } catch {
      // as it was
    }
  }

  show({ conversations, now }, query) {
    if (!query) this.known = conversations;
    const list = $('list');
    const focused = document.activeElement?.dataset?.chat;
    list.replaceChildren(...conversations.map((each) => this.line(each, now)));
    if (focused) [...list.querySelectorAll('button')].find((each) => each.dataset.chat === focused)?.focus();
    $('list-empty').hidden = conversations.length > 0;
    $('list-empty').textContent = query ? LIST.noMatch : LIST.empty;
  }

  line(each, now) {
    const state = STATES[each.state] ?? (each.queued ? STATES.queued : '');
    const title = asTitle(each.title) || LIST.untitled;
    const line = button(el('span', { class: 'name' }, title), () => this.choose(each.chat), { 'data-chat': each.chat, 'aria-current': each.chat === this.current ? 'page' : null });
    line.append(el('span', { class: 'about' }, state ? el('span', { class: `state ${each.state}` }, state) : '', el('span', { class: 'faint' }, age(each.active_at, now))));
    if (each.where) line.append(el('span', { class: 'where faint' }, each.where));
    return el('li', {}, line);
  }

  mark(chat) {
    this.current = chat;
    markCurrent($('list').querySelectorAll('button'), (each) => each.dataset.chat === chat);
  }
}
