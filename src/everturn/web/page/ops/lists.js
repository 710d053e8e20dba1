// The lists of the page: what their columns show, and what can be done to a row.
import { el } from '../dom.js';
import { Table, since, theirNow } from './table.js';
import { refusal, short, stateName, why } from './words.js';

const ago = (at) => (at ? el('span', { class: 'time' }, since(at), ' ago') : 'not yet');
const faint = (...kids) => el('span', { class: 'faint block' }, ...kids);
const lifeOf = (id, words = 'What happened') => (id ? el('a', { class: 'life', href: `#life=${encodeURIComponent(id)}` }, words) : null);

/** The id its sender gave; an adapter may have added where it came from. */
export const plainId = (stored) => String(stored).replace(/@[^@]*$/, '').replaceAll('%40', '@').replaceAll('%25', '%');

/** Who speaks where. */
function talk(row) {
  const name = row.title || row.who || row.chat || row.key;
  const under = [row.platform, row.who && row.who !== name ? row.who : null, !row.title && row.chat && row.chat !== name ? row.chat : null].filter(Boolean).join(' · ');
  const open = row.platform === 'web' && row.chat;
  return [open ? el('a', { href: `/#c=${encodeURIComponent(row.chat)}`, title: row.key }, name) : el('span', { title: row.key }, name), faint(under)];
}
const TALK = { head: 'Conversation', of: ['title', 'who', 'chat', 'platform', 'key'], draw: talk };
const nameOf = (row) => row.title || row.who || row.chat || row.key;
/** A conversation and whose it is. */
const named = (row) => (row.title ? `“${row.title}”${row.who ? ` (${row.who})` : ''}` : nameOf(row));
const quote = (text) => el('span', { class: 'quote' }, text || '(no words)');

const sessionAct = (row, action, name, more = {}) => ({ name, of: named(row), path: '/ops/api/sessions/act', body: { key: row.key, action }, ...more });
const STOP = { sure: { question: 'Stop it? What is done so far stays.', yes: 'Stop it', no: 'Let it run' } };
const SUSPEND = { sure: { question: 'Set it aside? Its next message begins a fresh conversation.', yes: 'Set it aside', no: 'Leave it' } };
const RESET = { sure: { question: 'Begin afresh? The conversation so far is kept, and can be brought back.', yes: 'Begin afresh', no: 'Leave it' } };

export function turnsTable(place, acts) {
  return new Table(place, {
    caption: 'Turns that are under way', acts, key: (row) => row.turn, empty: 'No turn is under way.', quiet: true,
    columns: [
      TALK,
      { head: 'For', of: ['started_at', 'attempt', 'attempt_at'], draw: (row) => [since(row.started_at), row.attempt > 1 ? faint(`attempt ${row.attempt}`) : null] },
      { head: 'Step', of: ['state', 'step', 'step_at', 'steps', 'requests', 'input_tokens', 'output_tokens', 'cost', 'message'], wide: true, draw: step },
    ],
    choices: (row) => ({ about: `session ${row.key}`, options: [sessionAct(row, 'stop', 'Stop', { kind: 'danger', ...STOP })] }),
  });
}

function step(row) {
  const used = [row.steps ? `step ${row.steps}` : null, row.input_tokens || row.output_tokens ? `${short(row.input_tokens + row.output_tokens)} tokens` : null, row.cost ? `costs ${row.cost.toFixed(4)}` : null].filter(Boolean).join(', ');
  const words = row.state === 'running' ? row.step || 'begins' : stateName(row.state);
  const more = [used, used && row.message ? ' · ' : null, lifeOf(row.message)].filter(Boolean);
  return [el('span', { class: `state ${row.state}` }, words), row.step_at ? el('span', { class: 'faint' }, ' for ', since(row.step_at)) : null, more.length ? faint(...more) : null];
}

export function sessionsTable(place, acts, caption = 'Conversations', quiet = true) {
  return new Table(place, {
    caption, acts, quiet, key: (row) => row.key, empty: quiet ? 'There is nothing in this list.' : '',
    columns: [
      TALK,
      { head: 'State', of: ['state', 'reason', 'running', 'waiting', 'why', 'note_waits'], draw: sessionState },
      { head: 'Last used', of: ['active_at'], draw: (row) => ago(row.active_at) },
      { head: 'Turns', of: ['turns'], draw: (row) => short(row.turns) },
    ],
    choices: (row) => ({ about: `session ${row.key}`, options: sessionOptions(row) }),
  });
}

function sessionState(row) {
  const state = row.running ? 'working' : row.note_waits ? 'noted' : row.state;
  const reason = row.state === 'active' ? '' : row.why || why(row.reason);
  const waits = row.waiting ? `${row.waiting} waiting` : '';
  return [el('span', { class: `state ${state}` }, stateName(state)), reason || waits ? faint([reason, waits].filter(Boolean).join('; ')) : null];
}

function sessionOptions(row) {
  if (row.state === 'suspended') return [sessionAct(row, 'resume', 'Bring back', { kind: 'main' }), sessionAct(row, 'reset', 'Begin afresh', { kind: 'quiet', ...RESET })];
  return [
    row.running ? sessionAct(row, 'stop', 'Stop', { kind: 'danger', ...STOP }) : null,
    row.state === 'resume_pending' && !row.running && row.resumable !== false ? sessionAct(row, 'resume', 'Go on now', { kind: 'main' }) : null,
    sessionAct(row, 'suspend', 'Set aside', { kind: 'quiet', ...SUSPEND }),
    sessionAct(row, 'reset', 'Begin afresh', { kind: 'quiet', ...RESET }),
  ].filter(Boolean);
}

const DROP_REPLY = { sure: { question: 'Drop it? It is never sent. It leaves this list and stays under “What happened”.', yes: 'Drop it', no: 'Keep it' } };
const DROP_MESSAGE = { sure: { question: 'Drop it? It is never answered. It leaves this list and stays under “What happened”.', yes: 'Drop it', no: 'Keep it' } };

const REPLY_COLUMNS = [
  { head: 'To', of: TALK.of, draw: talk },
  { head: 'Reply', of: ['text', 'kind', 'message'], wide: true, draw: (row) => [quote(row.text), lifeOf(row.message)] },
];
const ERROR = { head: 'Why', of: ['error', 'attempts', 'tries', 'tried_at', 'sent_again_at'], draw: reason };
function reason(row) {
  const tries = row.tries ?? row.attempts;
  return [el('span', { class: 'why' }, refusal(row, theirNow())), tries > 1 ? faint(`tried ${tries} times`) : null];
}
const replyAct = (row, action, name, more = {}) => ({ name, of: `reply to ${row.who || nameOf(row)}`, path: '/ops/api/outbox/act', body: { reply: row.reply, action }, ...more });

export function repliesTable(place, acts, state, caption, quiet = false) {
  const age = { head: state === 'owed' ? 'Waits' : 'Since', of: ['created_at', 'ended_at', 'due_at', 'attempts', 'error'], draw: (row) => replyAge(row, state) };
  return new Table(place, {
    caption, acts, quiet, key: (row) => row.reply, empty: quiet ? 'There is nothing in this list.' : '',
    columns: state === 'owed' ? [...REPLY_COLUMNS, age] : [...REPLY_COLUMNS, ERROR, age],
    choices: (row) => ({ about: `reply ${row.reply}`, options: replyOptions(row, state) }),
  });
}

function replyAge(row, state) {
  const tried = state === 'owed' && row.attempts ? faint(`${row.attempts} tried${row.error ? `: ${row.error}` : ''}`) : null;
  return [state === 'owed' ? since(row.created_at) : ago(row.ended_at ?? row.created_at), tried];
}

function replyOptions(row, state) {
  const reply = `The reply to ${row.who || nameOf(row)}`;
  const drop = replyAct(row, 'drop', 'Drop', { kind: 'quiet', done: `${reply} is dropped.`, ...DROP_REPLY });
  const again = { done: `${reply} is on its way again.`, back: state === 'owed' ? undefined : `${reply} was tried again, and not delivered.` };
  if (state === 'doubtful') return [replyAct(row, 'mark_sent', 'It arrived', { kind: 'main', done: `${reply} counts as delivered.` }), replyAct(row, 'send', 'Send again, marked', again), drop];
  if (state === 'dead') return [replyAct(row, 'send', 'Send again', { kind: 'main', ...again }), drop];
  return [replyAct(row, 'send', 'Send now', again), drop];
}

const messageAct = (row, action, name, more = {}) => ({ name, of: `message of ${row.who || nameOf(row)}`, path: '/ops/api/inbox/act', body: { inbox: row.id, action }, ...more });

export function messagesTable(place, acts, state, caption, quiet = false) {
  const dead = state === 'dead';
  return new Table(place, {
    caption, acts, quiet, key: (row) => row.id, empty: quiet ? 'There is nothing in this list.' : '',
    columns: [
      { head: 'From', of: TALK.of, draw: talk },
      { head: 'Message', of: ['text', 'kind', 'message'], wide: true, draw: (row) => [quote(row.text), lifeOf(row.message)] },
      dead
        ? { head: 'Why', of: ['why', 'warning'], draw: (row) => [el('span', { class: 'why' }, why(row.why) || 'not known'), row.warning ? faint(row.warning) : null] }
        : { head: 'State', of: ['state', 'turn'], draw: (row) => (row.state === 'claimed' ? 'is being answered' : 'waits for its turn') },
      { head: dead ? 'Since' : 'Waits', of: ['accepted_at', 'ended_at'], draw: (row) => (dead ? ago(row.ended_at ?? row.accepted_at) : since(row.accepted_at)) },
    ],
    choices: dead ? (row) => ({ about: `message ${row.id}`, options: [messageAct(row, 'run', 'Try again', { kind: 'main' }), messageAct(row, 'drop', 'Drop', { kind: 'quiet', ...DROP_MESSAGE })] }) : null,
  });
}

export function platformsTable(place) {
  return new Table(place, {
    caption: 'Where people write', quiet: true, key: (row) => `${row.name} ${row.account}`, empty: 'No platform is connected.',
    columns: [
      { head: 'Platform', of: ['name', 'account'], draw: (row) => [row.name, row.account ? faint(row.account) : null] },
      { head: 'State', of: ['state', 'trouble', 'since'], draw: reached },
      { head: 'Last received', of: ['received_at'], draw: (row) => ago(row.received_at) },
      { head: 'Last sent', of: ['sent_at'], draw: (row) => ago(row.sent_at) },
      { head: 'In line', of: ['waiting', 'owed'], draw: (row) => `${row.waiting ?? 0} in, ${row.owed ?? 0} out` },
    ],
  });
}

function reached(row) {
  const well = ['reading', 'open'].includes(row.state);
  return [el('span', { class: well ? null : 'wrong' }, stateName(row.state) || '–'), row.since ? [' for ', since(row.since)] : null, row.trouble ? faint(row.trouble) : null].flat();
}

export function instancesTable(place) {
  return new Table(place, {
    caption: 'Lives of the gateway', quiet: true, key: (row) => row.number, empty: 'None is known.',
    columns: [
      { head: 'Life', of: ['number', 'host', 'pid'], draw: (row) => [`${row.number}`, faint(`${row.host}, process ${row.pid}`)] },
      { head: 'Started', of: ['started_at'], draw: (row) => ago(row.started_at) },
      { head: 'Now', of: ['alive', 'heartbeat_at', 'ended', 'ended_at', 'drain_kind', 'drain_reason'], draw: lifeNow },
    ],
  });
}

function lifeNow(row) {
  if (row.alive) {
    const state = row.drain_kind ? `ends (${row.drain_kind}${row.drain_reason ? `: ${row.drain_reason}` : ''})` : 'alive';
    return [el('span', { class: 'state working' }, state)];
  }
  const how = { clean: 'ended as asked', unclean: 'killed or crashed' }[row.ended] ?? (row.ended ? `ended: ${row.ended}` : 'killed or crashed');
  return [how, row.ended_at ?? row.heartbeat_at ? faint(ago(row.ended_at ?? row.heartbeat_at)) : null];
}
