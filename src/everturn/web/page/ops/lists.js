// The lists of the page: what their columns show, and what can be done to a row.
import { el } from '../dom.js';
import { Table, since, theirNow } from './table.js';
import { CAPTIONS, HEAD, LIST, MESSAGE, REPLY, SESSION, refusal, short, stateName, why } from './texts.js';

const ago = (at) => (at ? el('span', { class: 'time' }, since(at), LIST.ago) : LIST.never);
export const faint = (...kids) => el('span', { class: 'faint block' }, ...kids);
const timelineLink = (id) => (id ? el('a', { class: 'to-timeline', href: `#message=${encodeURIComponent(id)}` }, LIST.timeline) : null);

/** The id its sender gave; an adapter may have added where it came from. */
export const plainId = (stored) => String(stored).replace(/@[^@]*$/, '').replaceAll('%40', '@').replaceAll('%25', '%');

/** A conversation: its title, its platform and its person. */
function talk(row) {
  const name = nameOf(row);
  const under = [row.platform, row.sender && row.sender !== name ? row.sender : null, !row.title && row.chat && row.chat !== name ? row.chat : null].filter(Boolean).join(' · ');
  const open = row.platform === 'web' && row.chat;
  return [open ? el('a', { href: `/#c=${encodeURIComponent(row.chat)}`, title: row.key }, name) : el('span', { title: row.key }, name), faint(under)];
}
const TALK = { head: HEAD.conversation, of: ['title', 'sender', 'chat', 'platform', 'key'], draw: talk };
const nameOf = (row) => row.title || row.sender || row.chat || row.key;
/** A conversation and whose it is. */
const named = (row) => (row.title ? LIST.talk(row.title, row.sender) : nameOf(row));
const quote = (text) => el('span', { class: 'quote' }, text || LIST.noText);

const sessionAct = (row, action, texts, kind) => ({ of: named(row), path: '/ops/api/sessions/act', body: { key: row.key, action }, kind, ...texts });

export function turnsTable(place, acts) {
  return new Table(place, {
    caption: CAPTIONS.turns, acts, key: (row) => row.turn, empty: LIST.noTurns, quiet: true,
    columns: [
      TALK,
      { head: HEAD.duration, of: ['started_at', 'attempt', 'attempt_at'], draw: (row) => [since(row.started_at), row.attempt > 1 ? faint(LIST.attempt(row.attempt)) : null] },
      { head: HEAD.step, of: ['state', 'step', 'step_at', 'steps', 'requests', 'input_tokens', 'output_tokens', 'cost', 'message'], wide: true, draw: step },
    ],
    choices: (row) => ({ about: `session ${row.key}`, options: [sessionAct(row, 'stop', SESSION.stop, 'danger')] }),
  });
}

function step(row) {
  const used = [row.steps ? LIST.step(row.steps) : null, row.input_tokens || row.output_tokens ? LIST.tokens(row.input_tokens + row.output_tokens) : null, row.cost ? LIST.cost(row.cost) : null].filter(Boolean).join(', ');
  const text = row.state === 'running' ? row.step || LIST.starting : stateName(row.state);
  const more = [used, used && row.message ? ' · ' : null, timelineLink(row.message)].filter(Boolean);
  return [el('span', { class: `state ${row.state}` }, text), row.step_at ? el('span', { class: 'faint' }, LIST.for, since(row.step_at)) : null, more.length ? faint(...more) : null];
}

export function sessionsTable(place, acts, caption = CAPTIONS.sessions, quiet = true) {
  return new Table(place, {
    caption, acts, quiet, key: (row) => row.key, empty: quiet ? LIST.empty : '',
    columns: [
      TALK,
      { head: HEAD.state, of: ['state', 'reason', 'running', 'queued', 'why', 'note_waits'], draw: sessionState },
      { head: HEAD.used, of: ['active_at'], draw: (row) => ago(row.active_at) },
      { head: HEAD.turns, of: ['turns'], draw: (row) => short(row.turns) },
    ],
    choices: (row) => ({ about: `session ${row.key}`, options: sessionOptions(row) }),
  });
}

function sessionState(row) {
  const state = row.running ? 'working' : row.note_waits ? 'noted' : row.state;
  const reason = row.state === 'active' ? '' : row.why || why(row.reason);
  const queued = row.queued ? LIST.queued(row.queued) : '';
  return [el('span', { class: `state ${state}` }, stateName(state)), reason || queued ? faint([reason, queued].filter(Boolean).join('; ')) : null];
}

function sessionOptions(row) {
  const reset = sessionAct(row, 'reset', SESSION.reset, 'quiet');
  if (row.state === 'suspended') return [sessionAct(row, 'resume', SESSION.resume, 'main'), reset];
  return [
    row.running ? sessionAct(row, 'stop', SESSION.stop, 'danger') : null,
    row.state === 'resume_pending' && !row.running && row.resumable !== false ? sessionAct(row, 'resume', SESSION.resumeNow, 'main') : null,
    sessionAct(row, 'suspend', SESSION.suspend, 'quiet'),
    reset,
  ].filter(Boolean);
}

const TEXT = { of: ['text', 'kind', 'message'], wide: true, draw: (row) => [quote(row.text), timelineLink(row.message)] };
const REPLY_COLUMNS = [{ head: HEAD.to, of: TALK.of, draw: talk }, { head: HEAD.reply, ...TEXT }];
const ERROR = { head: HEAD.why, of: ['error', 'attempts', 'tries', 'tried_at', 'sent_again_at'], draw: reason };
function reason(row) {
  const tries = row.tries ?? row.attempts;
  return [el('span', { class: 'why' }, refusal(row, theirNow())), tries > 1 ? faint(LIST.tries(tries)) : null];
}
const person = (row) => row.sender || nameOf(row);
const replyAct = (row, action, texts, kind) => ({ of: REPLY.of(person(row)), path: '/ops/api/outbox/act', body: { reply: row.reply, action }, kind, ...texts });

export function repliesTable(place, acts, state, quiet = false) {
  const pending = state === 'pending';
  const age = { head: pending ? HEAD.age : HEAD.since, of: ['created_at', 'ended_at', 'due_at', 'attempts', 'error'], draw: (row) => replyAge(row, pending) };
  return new Table(place, {
    caption: CAPTIONS[state], acts, quiet, key: (row) => row.reply, empty: quiet ? LIST.empty : '',
    columns: pending ? [...REPLY_COLUMNS, age] : [...REPLY_COLUMNS, ERROR, age],
    choices: (row) => ({ about: `reply ${row.reply}`, options: replyOptions(row, state) }),
  });
}

function replyAge(row, pending) {
  const tried = pending && row.attempts ? faint(LIST.tried(row.attempts, row.error)) : null;
  return [pending ? since(row.created_at) : ago(row.ended_at ?? row.created_at), tried];
}

function replyOptions(row, state) {
  const whom = person(row);
  const send = replyAct(row, 'send', REPLY.send(whom, state), state === 'dead' ? 'main' : undefined);
  const drop = replyAct(row, 'drop', REPLY.drop(whom), 'quiet');
  return state === 'unknown' ? [replyAct(row, 'mark_sent', REPLY.arrived(whom), 'main'), send, drop] : [send, drop];
}

const messageAct = (row, action, texts, kind) => ({ of: MESSAGE.of(person(row)), path: '/ops/api/inbox/act', body: { inbox: row.id, action }, kind, ...texts });

export function messagesTable(place, acts, list, quiet = false) {
  const dead = list === 'dead_messages';
  return new Table(place, {
    caption: CAPTIONS[list], acts, quiet, key: (row) => row.id, empty: quiet ? LIST.empty : '',
    columns: [
      { head: HEAD.from, of: TALK.of, draw: talk },
      { head: HEAD.message, ...TEXT },
      dead
        ? { head: HEAD.why, of: ['why', 'warning'], draw: (row) => [el('span', { class: 'why' }, why(row.why) || LIST.unknown), row.warning ? faint(row.warning) : null] }
        : { head: HEAD.state, of: ['state', 'turn'], draw: (row) => (row.state === 'claimed' ? LIST.claimed : LIST.notClaimed) },
      { head: dead ? HEAD.since : HEAD.age, of: ['accepted_at', 'ended_at'], draw: (row) => (dead ? ago(row.ended_at ?? row.accepted_at) : since(row.accepted_at)) },
    ],
    choices: dead ? (row) => ({ about: `message ${row.id}`, options: [messageAct(row, 'run', MESSAGE.run, 'main'), messageAct(row, 'drop', MESSAGE.drop, 'quiet')] }) : null,
  });
}

export function platformsTable(place) {
  return new Table(place, {
    caption: CAPTIONS.platforms, quiet: true, key: (row) => `${row.name} ${row.account}`, empty: LIST.noPlatforms,
    columns: [
      { head: HEAD.platform, of: ['name', 'account'], draw: (row) => [row.name, row.account ? faint(row.account) : null] },
      { head: HEAD.state, of: ['state', 'trouble', 'since'], draw: reached },
      { head: HEAD.received, of: ['received_at'], draw: (row) => ago(row.received_at) },
      { head: HEAD.sent, of: ['sent_at'], draw: (row) => ago(row.sent_at) },
      { head: HEAD.open, of: ['queued', 'pending'], draw: (row) => LIST.openWork(row.queued ?? 0, row.pending ?? 0) },
    ],
  });
}

function reached(row) {
  const well = ['reading', 'open'].includes(row.state);
  return [el('span', { class: well ? null : 'wrong' }, stateName(row.state) || '–'), row.since ? [LIST.for, since(row.since)] : null, row.trouble ? faint(row.trouble) : null].flat();
}

export function instancesTable(place) {
  return new Table(place, {
    caption: CAPTIONS.instances, quiet: true, key: (row) => row.number, empty: LIST.noInstances,
    columns: [
      { head: HEAD.instance, of: ['number', 'host', 'pid'], draw: (row) => [`${row.number}`, faint(LIST.process(row.host, row.pid))] },
      { head: HEAD.started, of: ['started_at'], draw: (row) => ago(row.started_at) },
      { head: HEAD.state, of: ['alive', 'heartbeat_at', 'ended', 'ended_at', 'drain_kind', 'drain_reason'], draw: instanceState },
    ],
  });
}

function instanceState(row) {
  if (row.alive) return [el('span', { class: 'state working' }, row.drain_kind ? LIST.ending(row.drain_kind, row.drain_reason) : LIST.alive)];
  const how = LIST.exits[row.ended ?? 'unclean'] ?? LIST.ended(row.ended);
  return [how, row.ended_at ?? row.heartbeat_at ? faint(ago(row.ended_at ?? row.heartbeat_at)) : null];
}
