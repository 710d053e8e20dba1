// Draws the items of a conversation. Each has a key; what did not change keeps its node, so nothing flickers and nothing is lost
// from under the reader's eyes or cursor.
import { button, copyButton, el } from './dom.js';
import { draw } from './markdown_dom.js';
import { APPROVAL, CALL, ITEM, STATUS, TURNS } from './texts.js';

const QUIET = { class: 'quiet' };
const NOT_ANSWERED = new Set(['failed', 'stopped']);

export class Drawing {
  /** `act` has: approve(id, how), deny(id), edit(item), again(item), drop(item). */
  constructor(list, act) {
    this.list = list;
    this.act = act;
    this.nodes = new Map();
  }

  clear() {
    this.nodes.clear();
    this.list.replaceChildren();
  }

  show(items) {
    const last = items.findLast((item) => item.kind === 'user');
    const seen = new Set();
    let place = this.list.firstChild;
    for (const item of items) {
      seen.add(item.key);
      let node = this.nodes.get(item.key);
      if (!node || node.kind !== item.kind) {
        if (node && node === place) place = place.nextSibling;
        node?.remove();
        node = this.make(item);
        this.nodes.set(item.key, node);
      }
      this.update(node, { ...item, last: item === last });
      if (node === place) place = place.nextSibling;
      else this.list.insertBefore(node, place);
    }
    for (const [key, node] of this.nodes) {
      if (!seen.has(key)) {
        node.remove();
        this.nodes.delete(key);
      }
    }
  }

  make(item) {
    const node = el('li', { class: item.kind });
    node.kind = item.kind;
    node.dataset.key = item.key;
    return node;
  }

  update(node, item) {
    const shape = JSON.stringify(item);
    if (node.shape === shape) return;
    node.shape = shape;
    if (item.kind === 'user') this.user(node, item);
    else if (item.kind === 'turn') this.turn(node, item);
    else if (item.kind === 'command') this.command(node, item);
    else if (item.kind === 'summary') this.summary(node, item);
    else this.notice(node, item);
  }

  user(node, item) {
    if (!node.body) {
      node.body = el('div', { class: 'bubble said' });
      node.foot = el('div', { class: 'foot' });
      node.append(el('span', { class: 'heard' }, ITEM.you), node.body, node.foot);
    }
    draw(node.body, item.text);
    const [sign, text] = STATUS[item.status] ?? STATUS.saved;
    const kids = [el('span', { class: `status ${item.status}`, title: text }, el('span', { 'aria-hidden': 'true' }, sign), ` ${text}`)];
    if (item.why) kids.push(el('span', { class: 'why' }, item.why));
    if (item.status === 'refused') kids.push(button(ITEM.change, () => this.act.edit(item), QUIET), button(ITEM.drop, () => this.act.drop(item), QUIET));
    else if (item.last && item.status !== 'sending') kids.push(button(ITEM.edit, () => this.act.edit(item), { ...QUIET, 'aria-label': ITEM.editLabel }));
    if (item.id && (item.last || NOT_ANSWERED.has(item.status)) && !['sending', 'refused'].includes(item.status)) kids.push(el('a', { href: `/ops#message=${encodeURIComponent(item.id)}` }, ITEM.timeline));
    node.classList.toggle('old', !item.last);
    node.foot.replaceChildren(...kids);
  }

  turn(node, item) {
    if (!node.parts) {
      node.parts = el('div', { class: 'parts' });
      node.foot = el('div', { class: 'foot' });
      node.append(el('span', { class: 'heard' }, ITEM.agent), node.parts, node.foot);
    }
    this.parts(node.parts, item);
    const kids = [];
    const working = item.state === 'running';
    if (working && !item.parts.some((part) => part.live)) kids.push(el('span', { class: 'dots', role: 'img', 'aria-label': ITEM.working }, el('i'), el('i'), el('i')));
    if (working && item.attempt > 1) kids.push(el('span', { class: 'why' }, ITEM.resumed));
    if (TURNS[item.state]) kids.push(el('span', { class: 'why' }, TURNS[item.state]));
    const text = item.parts.filter((part) => part.kind === 'text').map((part) => part.text).join('\n\n');
    if (!working && text) kids.push(copyButton(() => text, ITEM.copyAnswer));
    node.foot.replaceChildren(...(item.approvals ?? []).map((each) => this.approval(each)), ...kids);
    node.setAttribute('aria-busy', String(working));
  }

  parts(into, item) {
    item.parts.forEach((part, n) => {
      let node = into.childNodes[n];
      if (!node || node.kind !== part.kind) {
        const made = part.kind === 'call' ? this.callNode() : el('div', { class: 'bubble answer' });
        made.kind = part.kind;
        if (node) node.replaceWith(made);
        else into.append(made);
        node = made;
      }
      if (part.kind === 'call') this.call(node, part, item);
      else {
        draw(node, part.text);
        node.classList.toggle('live', Boolean(part.live));
        node.classList.toggle('aside', !part.final && !part.live);
      }
    });
    while (into.childNodes.length > item.parts.length) into.lastChild.remove();
  }

  callNode() {
    const node = el('details', { class: 'call' });
    node.head = el('summary');
    node.body = el('div', { class: 'call-body' });
    node.append(node.head, node.body);
    return node;
  }

  call(node, part, item) {
    const shape = JSON.stringify([part, item.state]);
    if (node.shape === shape) return;
    node.shape = shape;
    const state = part.unknown ? 'unknown' : ['failed', 'skipped'].includes(part.outcome) ? part.outcome : part.result !== undefined ? 'done' : ['running', 'awaiting_approval'].includes(item.state) ? item.state : 'unfinished';
    node.head.replaceChildren(el('span', { class: `dot ${state}`, 'aria-hidden': 'true' }), el('span', { class: 'tool' }, part.name), el('span', { class: 'brief' }, brief(part.arguments)), el('span', { class: state === 'failed' ? 'wrong' : 'faint' }, CALL.states[state]));
    const kids = [el('h4', {}, CALL.arguments), el('pre', { tabindex: '0' }, pretty(part.arguments))];
    if (part.result !== undefined) kids.push(el('h4', {}, CALL.result), el('pre', { tabindex: '0' }, part.result + (part.cut ? '\n…' : '')));
    node.body.replaceChildren(...kids);
  }

  approval(each) {
    const until = each.expires_at ? new Date(each.expires_at * 1000).toLocaleString() : '';
    return el('div', { class: 'card approval', role: 'group', 'aria-label': APPROVAL.label },
      el('p', {}, el('strong', {}, each.tool), APPROVAL.asks),
      el('pre', { tabindex: '0' }, String(each.request ?? '')),
      el('p', { class: 'faint' }, APPROVAL.hint(until)),
      el('div', { class: 'buttons' },
        button(APPROVAL.allow, () => this.act.approve(each.id, ''), { class: 'main' }),
        button(APPROVAL.allowSession, () => this.act.approve(each.id, 'session'), { class: 'plain' }),
        button(APPROVAL.deny, () => this.act.deny(each.id), { class: 'danger' })));
  }

  command(node, item) {
    const [sign, text] = STATUS[item.status] ?? ['', ''];
    const kids = [el('code', {}, item.text.slice(0, 300))];
    if (item.status) kids.push(el('span', { class: `status ${item.status}` }, `${sign} ${text}`));
    if (item.why) kids.push(el('span', { class: 'why' }, item.why), button(ITEM.drop, () => this.act.drop(item), QUIET));
    const answer = el('div', { class: 'command-answer' });
    if (item.answer) draw(answer, item.answer);
    node.replaceChildren(el('div', { class: 'command-line' }, ...kids), answer);
  }

  notice(node, item) {
    const body = el('div', { class: 'notice-body' });
    draw(body, item.text);
    node.replaceChildren(body);
  }

  summary(node, item) {
    const body = el('div');
    draw(body, item.text);
    node.replaceChildren(el('details', {}, el('summary', {}, ITEM.summary), body));
  }
}

function brief(text) {
  const line = String(text ?? '').replace(/\s+/g, ' ').trim();
  return line === '{}' ? '' : line.length > 90 ? `${line.slice(0, 90)}…` : line;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text || ITEM.nothing;
  }
}
