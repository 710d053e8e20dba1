// Draws the list of things said. Each has a key; what did not change keeps its node, so nothing flickers and nothing is lost
// from under the reader's eyes or cursor.
import { el, copyButton } from './dom.js';
import { draw } from './markdown_dom.js';

const STATUS = {
  sending: ['○', 'sending'],
  safe: ['✓', 'safe'],
  answered: ['✓✓', 'answered'],
  failed: ['!', 'not answered'],
  stopped: ['■', 'stopped'],
  refused: ['!', 'not sent'],
};
const TURN = {
  interrupted: 'The gateway was interrupted here. It goes on by itself.',
  waiting: 'It waits for your answer.',
  stopped: 'Stopped.',
  failed: 'This could not be answered.',
  suspended: 'This was set aside.',
  rolled_back: 'Taken back.',
};
const ENDED = { failed: 'failed', skipped: 'not run' }; // how a call ended that gave no proper result
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
      node.append(el('span', { class: 'heard' }, 'You: '), node.body, node.foot);
    }
    draw(node.body, item.text);
    const [sign, words] = STATUS[item.status] ?? STATUS.safe;
    const kids = [el('span', { class: `status ${item.status}`, title: words }, el('span', { 'aria-hidden': 'true' }, sign), ` ${words}`)];
    if (item.why) kids.push(el('span', { class: 'why' }, item.why));
    if (item.status === 'refused') kids.push(this.button('Change it', () => this.act.edit(item)), this.button('Drop it', () => this.act.drop(item)));
    else if (item.last && item.status !== 'sending') kids.push(this.button('Edit', () => this.act.edit(item), 'Edit and send again'));
    if (item.id && (item.last || NOT_ANSWERED.has(item.status)) && !['sending', 'refused'].includes(item.status)) kids.push(el('a', { href: `/ops#life=${encodeURIComponent(item.id)}` }, 'What happened'));
    node.classList.toggle('old', !item.last);
    node.foot.replaceChildren(...kids);
  }

  turn(node, item) {
    if (!node.parts) {
      node.parts = el('div', { class: 'parts' });
      node.foot = el('div', { class: 'foot' });
      node.append(el('span', { class: 'heard' }, 'Everturn: '), node.parts, node.foot);
    }
    this.parts(node.parts, item);
    const kids = [];
    const working = item.state === 'running';
    if (working && !item.parts.some((part) => part.live)) kids.push(el('span', { class: 'dots', role: 'img', 'aria-label': 'working' }, el('i'), el('i'), el('i')));
    if (working && item.attempt > 1) kids.push(el('span', { class: 'why' }, 'It was interrupted and goes on.'));
    if (TURN[item.state]) kids.push(el('span', { class: 'why' }, TURN[item.state]));
    const words = item.parts.filter((part) => part.kind === 'text').map((part) => part.text).join('\n\n');
    if (!working && words) kids.push(copyButton(() => words, 'Copy the answer'));
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
    const state = part.unknown ? 'outcome unknown' : ENDED[part.outcome] ?? (part.result !== undefined ? 'done' : item.state === 'running' ? 'running' : item.state === 'waiting' ? 'asks' : 'not finished');
    node.head.replaceChildren(el('span', { class: `dot ${state.split(' ')[0]}`, 'aria-hidden': 'true' }), el('span', { class: 'tool' }, part.name), el('span', { class: 'brief' }, brief(part.arguments)), el('span', { class: state === 'failed' ? 'wrong' : 'faint' }, state));
    const kids = [el('h4', {}, 'Asked'), el('pre', { tabindex: '0' }, pretty(part.arguments))];
    if (part.result !== undefined) kids.push(el('h4', {}, 'Result'), el('pre', { tabindex: '0' }, part.result + (part.cut ? '\n…' : '')));
    node.body.replaceChildren(...kids);
  }

  approval(each) {
    const until = each.expires_at ? ` It stays open until ${new Date(each.expires_at * 1000).toLocaleString()}.` : '';
    return el('div', { class: 'card approval', role: 'group', 'aria-label': 'A question' },
      el('p', {}, el('strong', {}, each.tool), ' wants your permission:'),
      el('pre', { tabindex: '0' }, String(each.question ?? '')),
      el('p', { class: 'faint' }, `Any other words close this question.${until}`),
      el('div', { class: 'buttons' },
        this.button('Allow', () => this.act.approve(each.id, ''), null, 'main'),
        this.button('Allow in this conversation', () => this.act.approve(each.id, 'session'), null, 'plain'),
        this.button('Deny', () => this.act.deny(each.id), null, 'danger')));
  }

  command(node, item) {
    const [sign, words] = STATUS[item.status] ?? ['', ''];
    const kids = [el('code', {}, item.text.slice(0, 300))];
    if (item.status) kids.push(el('span', { class: `status ${item.status}` }, `${sign} ${words}`));
    if (item.why) kids.push(el('span', { class: 'why' }, item.why), this.button('Drop it', () => this.act.drop(item)));
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
    node.replaceChildren(el('details', {}, el('summary', {}, 'What was said before was summed up'), body));
  }

  button(words, act, label = null, kind = 'quiet') {
    const button = el('button', { type: 'button', class: kind, 'aria-label': label }, words);
    button.addEventListener('click', act);
    return button;
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
    return text || '(nothing)';
  }
}
