// Every text of the operations page that its HTML does not hold: constants, and pure functions of the gateway's answers. A translator changes this file and ops.html.

const OLD_S = 300; // what waits longer than this is worth a look
const plural = { reply: 'replies' };

/** "1 turn", "2 turns". */
export const count = (n, one) => `${n} ${n === 1 ? one : plural[one] ?? `${one}s`}`;

/** A length of time in at most two units. */
export function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const [days, hours, minutes] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (days) return two(days, 'd', hours, 'h');
  if (hours) return two(hours, 'h', minutes, 'min');
  return s < 600 ? two(Math.max(1, minutes), 'min', s < 60 ? 0 : Math.floor(s) % 60, 's') : `${minutes} min`;
}

const two = (a, unit, b, smaller) => (b ? `${a} ${unit} ${b} ${smaller}` : `${a} ${unit}`);

/** How long something lasts, in whole seconds: for a number that counts up on the screen. */
export const lasting = (seconds) => span(seconds < 10 ? Math.floor(Math.max(0, seconds)) : seconds);

/** A time of day; with the day when it was not today. */
export function moment(at, now, exact = false) {
  const when = new Date(at * 1000);
  const time = when.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: exact ? '2-digit' : undefined });
  if (when.toDateString() === new Date(now * 1000).toDateString()) return time;
  const day = Math.abs(now - at) < 6 * 86400 ? { weekday: 'short' } : { day: 'numeric', month: 'short', year: Math.abs(now - at) > 300 * 86400 ? 'numeric' : undefined };
  return `${when.toLocaleDateString([], day)} ${time}`;
}

/** The state of the gateway in one sentence, and its tone: well, look or trouble. */
export function statusLine({ now, gateway, counts, platforms = [] }) {
  const c = counts;
  if (gateway.trouble) return { tone: 'trouble', text: `Database error: ${gateway.trouble}` };
  if (gateway.state && !['running', 'ready'].includes(gateway.state)) return { tone: 'look', text: `The gateway is ${gateway.state}. ${capital(openWork(c))}` };
  const wrong = [
    ...platforms.filter((each) => each.trouble).map((each) => `${each.name} is not receiving`),
    c.dead_replies && `${count(c.dead_replies, 'reply')} ${were(c.dead_replies)} not delivered`,
    c.outbox_unknown && `the delivery of ${count(c.outbox_unknown, 'reply')} is unknown`,
    c.dead_messages && `${count(c.dead_messages, 'message')} failed`,
    c.suspended && `${count(c.suspended, 'conversation')} ${are(c.suspended)} suspended`,
  ].filter(Boolean);
  if (wrong.length) return { tone: 'trouble', text: `${capital(listed(wrong))}.` };
  const slow = [
    waitsLong(c.outbox_oldest_at, now) && `a reply has been sending for ${span(now - c.outbox_oldest_at)}`,
    waitsLong(c.inbox_oldest_at, now) && `a message has been queued for ${span(now - c.inbox_oldest_at)}`,
  ].filter(Boolean);
  if (c.interrupted) slow.unshift(`${count(c.interrupted, 'turn')} ${were(c.interrupted)} interrupted and will resume`);
  if (c.awaiting_approval) slow.unshift(`${count(c.awaiting_approval, 'turn')} ${are(c.awaiting_approval)} awaiting approval`); // somebody has to act: that is not "all well"
  if (slow.length) return { tone: 'look', text: `${capital(listed(slow))}.` };
  return { tone: 'well', text: `All well: ${openWork(c)}` };
}

const are = (n) => (n === 1 ? 'is' : 'are');
const were = (n) => (n === 1 ? 'was' : 'were');

function openWork(c) {
  const parts = [c.running ? `${count(c.running, 'turn')} running` : 'no turn running'];
  if (c.awaiting_approval) parts.push(`${count(c.awaiting_approval, 'turn')} awaiting approval`);
  if (c.inbox_queued) parts.push(`${count(c.inbox_queued, 'message')} queued`);
  if (c.outbox_pending) parts.push(`${count(c.outbox_pending, 'reply')} sending`);
  if (!c.awaiting_approval && !c.inbox_queued && !c.outbox_pending) parts.push('nothing queued');
  return `${parts.join(', ')}.`;
}

const waitsLong = (at, now) => at !== null && at !== undefined && now - at > OLD_S;
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const listed = (parts) => (parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`);

const EXITS = { unclean: 'was killed or crashed', restart: 'restarted', stop: 'was stopped' };

/** A start after an exit, as a sentence. */
export function recovery(each, now) {
  const exit = EXITS[each.previous_exit] ?? (each.previous_exit ? `ended (${each.previous_exit})` : 'started');
  const when = moment(each.died_at ?? each.at, now);
  const done = [
    each.continued && `${count(each.continued, 'turn')} resumed`,
    each.returned && `${count(each.returned, 'message')} queued again`,
    each.suspended && `${count(each.suspended, 'conversation')} suspended`,
  ].filter(Boolean);
  // Of a process that was killed only the last thing it wrote is known: it died then or later.
  const most = each.previous_exit === 'unclean' ? 'at most ' : '';
  const back = each.back_after_s === null || each.back_after_s === undefined ? '' : `, ready after ${most}${span(each.back_after_s)}`;
  return `At ${when} the gateway ${exit}${back}, ${done.join(', ') || 'nothing was running'}.`;
}

const STATES = {
  active: 'active', working: 'running', resume_pending: 'interrupted, will resume', noted: 'resumes with the next message', suspended: 'suspended',
  running: 'running', awaiting_approval: 'awaiting approval', interrupted: 'interrupted', answered: 'answered', failed: 'failed', stopped: 'stopped', rolled_back: 'undone',
  trouble: 'not receiving', silent: 'no response',
};

const REFUSED = 'the platform refused it: ';
/** Why a reply is a dead letter, and whether it failed again after it was sent again. */
export function refusal({ error, tried_at: at, sent_again_at: asked }, now) {
  const text = error || LIST.unknown;
  const refused = text.startsWith(REFUSED);
  return asked ? `Sent again at ${moment(at ?? asked, now)}, ${refused ? 'refused' : 'failed'} again: ${refused ? text.slice(REFUSED.length) : text}` : text;
}

export const stateName = (state) => STATES[state] ?? String(state ?? '').replaceAll('_', ' ');

const WHY = {
  stuck: 'it was running when the gateway died several times', restart_timeout: 'cut off by a restart', shutdown_timeout: 'cut off by a stop', restart_interrupted: 'the gateway died',
  'the gateway ended': 'the gateway ended while it was running', failed: 'the agent failed', suspended: 'the conversation was suspended', '/stop': 'a user stopped it', '/new': 'the conversation was reset',
  queue_full: 'too many messages were queued', too_long: 'it is longer than the limit', damaged: 'its stored data cannot be read',
  unstorable: 'it could not be stored as it came', operator: 'an operator ended it',
};
/** A stored reason for people. */
export const why = (reason) => (reason ? WHY[reason] ?? String(reason) : '');

/** The outcome of one message in a sentence. `message` is what `everturn explain --json` prints. */
export function verdict(message) {
  const reply = message.replies.at(-1);
  const { turn } = message;
  if (reply?.state === 'sent' && (!turn || turn.state === 'answered')) return { tone: 'well', text: message.kind === 'command' ? 'Done, and its answer was delivered.' : 'Answered, and the answer was delivered.' };
  if (reply?.state === 'dead') return { tone: 'trouble', text: `The reply was not delivered${because(reply.error)}.` };
  if (reply?.state === 'unknown') return { tone: 'trouble', text: 'The reply was sent; its delivery is unknown.' };
  if (message.state === 'dead') return { tone: 'trouble', text: `No answer: the message failed${because(why(message.why))}.` };
  if (message.state === 'withdrawn') return { tone: 'look', text: `It was withdrawn before it was answered${because(why(message.why))}.` };
  if (message.state === 'expired') return { tone: 'look', text: 'It was queued too long and is no longer answered.' };
  if (turn) return ofTurn(turn, reply);
  if (message.ended_at) return { tone: 'well', text: 'Done.' };
  return { tone: 'look', text: 'It is saved and queued.' };
}

function ofTurn(turn, reply) {
  const reason = why(turn.why ?? turn.reason);
  switch (turn.state) {
    case 'running': return { tone: 'well', text: turn.attempts.length > 1 ? `Its turn is running, attempt ${turn.attempts.at(-1).attempt}.` : 'Its turn is running.' };
    case 'awaiting_approval': return { tone: 'look', text: 'Its turn is awaiting approval.' };
    case 'interrupted': return { tone: 'look', text: `Its turn was interrupted${because(reason)}; the gateway will resume it.` };
    case 'stopped': return { tone: 'look', text: `Its turn was stopped${because(reason === '/stop' ? '' : reason)}.` };
    case 'rolled_back': return { tone: 'look', text: 'Its turn was undone.' };
    case 'suspended': return { tone: 'trouble', text: 'No answer: its conversation was suspended because it was running when the gateway died several times. You can resume it.' };
    case 'failed': return { tone: 'trouble', text: `No answer: its turn failed${because(reason === WHY.failed ? turn.failures?.at(-1)?.why : reason)}.` };
    default: return { tone: 'look', text: reply ? 'Answered; the answer is being sent.' : 'Answered.' };
  }
}

const because = (reason) => (reason ? `: ${String(reason).replace(/[.\s]+$/, '')}` : '');

/** A number of anything, short. */
export function short(n) {
  if (n === null || n === undefined) return '–';
  if (Math.abs(n) >= 999_500) return `${trim(n / 1e6)} M`;
  if (Math.abs(n) >= 10_000) return `${trim(n / 1e3)} k`;
  return trim(n);
}
const trim = (n) => String(Math.round(n * 10) / 10);

// -- the page ----------------------------------------------------------------------------------------------------------

export const PAGE = {
  title: (trouble) => `${trouble ? '● ' : ''}Operations · Everturn`,
  about: (version) => `Everturn ${version ?? ''}`,
  up: ' · up ',
  conversations: (n) => ` · ${n >= 10_000 ? '10,000 conversations or more' : count(n, 'conversation')}`,
  disconnected: 'Disconnected from the gateway.',
  unavailable: (error) => `The gateway cannot answer now: ${error}.`,
  reconnecting: (text, at) => `${text}${at ? ` Last known state: ${at}.` : ''} Reconnecting …`,
  reconnected: 'Reconnected.',
  refused: (error) => `The gateway refused this view: ${error}`,
  fault: 'This page has a fault. Reload it.',
};

export const ACTION = {
  column: 'Actions',
  requested: (name) => `${name}: requested, not yet done`,
  refused: (error) => `Not done: ${error}`,
  result: (name, said) => `${capital(name)}: ${said || 'done.'}`,
  refusedBy: (name, error) => `${capital(name)}: not done: ${error}`,
};

/** The tiles of the first view, by the count they show. */
export const TILES = {
  open: 'open turns', awaiting_approval: 'awaiting approval', inbox_queued: 'messages queued', outbox_pending: 'replies sending',
  dead_replies: 'replies not delivered', outbox_unknown: 'delivery unknown', dead_messages: 'messages failed', suspended: 'conversations suspended', oldest: 'oldest ',
};

// -- lists -------------------------------------------------------------------------------------------------------------

export const CAPTIONS = {
  turns: 'Open turns', sessions: 'Conversations', suspended: 'Suspended conversations', platforms: 'Platforms', instances: 'Instances of the gateway',
  queued: 'Queued messages', pending: 'Replies that are being sent', dead: 'Dead letters: replies not delivered', unknown: 'Replies whose delivery is unknown',
  dead_messages: 'Dead letters: messages not answered', requests: 'Access requests', people: 'Approved and revoked people',
};

/** What each list of messages holds. */
export const MESSAGE_LISTS = {
  queued: 'Accepted, saved, and not yet answered.',
  pending: 'Written, and not yet confirmed by the platform. The gateway retries them.',
  dead: 'Dead letters: the platform refused these replies or did not answer in time. The gateway does nothing with them until you decide.',
  unknown: 'The gateway or the connection ended while these replies were being sent. Look into the chat, then say that it arrived, or send it again with a mark.',
  dead_messages: 'Dead letters: these messages were accepted and not answered. “Try again” starts a new turn.',
};

export const HEAD = {
  conversation: 'Conversation', duration: 'For', step: 'Step', state: 'State', used: 'Last used', turns: 'Turns', to: 'To', from: 'From', reply: 'Reply', message: 'Message',
  why: 'Why', age: 'Age', since: 'Since', platform: 'Platform', received: 'Last received', sent: 'Last sent', open: 'Open', instance: 'Instance', started: 'Started', person: 'Person', requested: 'Requested',
};

export const LIST = {
  empty: 'This list is empty.', noTurns: 'No turn is open.', noPlatforms: 'No platform is connected.', noInstances: 'No instance is known.', noRequests: 'No access request is open.', noPeople: 'Nobody was approved or revoked here.',
  ago: ' ago', never: 'not yet', for: ' for ', noText: '(no text)', unknown: 'not known', timeline: 'Timeline',
  attempt: (n) => `attempt ${n}`,
  step: (n) => `step ${n}`,
  tokens: (n) => `${short(n)} tokens`,
  cost: (n) => `costs ${n.toFixed(4)}`,
  starting: 'starting',
  queued: (n) => `${n} queued`,
  tries: (n) => `${n} attempts`,
  tried: (n, error) => `${count(n, 'attempt')}${error ? `: ${error}` : ''}`,
  claimed: 'running', notClaimed: 'queued',
  openWork: (queued, pending) => `${queued} queued, ${pending} sending`,
  process: (host, pid) => `${host}, process ${pid}`,
  alive: 'running', ending: (kind, reason) => `stopping (${kind}${reason ? `: ${reason}` : ''})`,
  exits: { clean: 'stopped', stop: 'stopped', restart: 'restarted', unclean: 'killed or crashed' }, ended: (how) => `ended: ${how}`,
  talk: (title, sender) => `“${title}”${sender ? ` (${sender})` : ''}`,
};

// -- actions -----------------------------------------------------------------------------------------------------------

export const SESSION = {
  stop: { name: 'Stop', sure: { question: 'Stop this turn? What is done so far stays.', yes: 'Stop it', no: 'Let it run' } },
  suspend: { name: 'Suspend', sure: { question: 'Suspend this conversation? Its next message starts a new one.', yes: 'Suspend it', no: 'Cancel' } },
  reset: { name: 'Reset', sure: { question: 'Reset this conversation? The conversation so far is kept, and can be resumed.', yes: 'Reset it', no: 'Cancel' } },
  resume: { name: 'Resume' },
  resumeNow: { name: 'Resume now' },
};

const drop = (what) => ({ name: 'Drop', sure: { question: `Drop it? It is never ${what}. It leaves this list; its timeline stays.`, yes: 'Drop it', no: 'Keep it' } });
export const REPLY = {
  of: (whom) => `reply to ${whom}`,
  drop: (whom) => ({ ...drop('sent'), done: `The reply to ${whom} is dropped.` }),
  send: (whom, state) => ({
    name: { unknown: 'Send again, marked', dead: 'Send again' }[state] ?? 'Send now',
    done: `The reply to ${whom} is being sent.`,
    back: state === 'pending' ? undefined : `The reply to ${whom} was sent again, and not delivered.`,
  }),
  arrived: (whom) => ({ name: 'It arrived', done: `The reply to ${whom} counts as delivered.` }),
};
export const MESSAGE = { of: (whom) => `message of ${whom}`, run: { name: 'Try again' }, drop: drop('answered') };

// -- people ------------------------------------------------------------------------------------------------------------

export const PEOPLE = {
  approve: { name: 'Approve' },
  approveOwner: { name: 'Approve as owner', sure: { question: 'Make this person an owner? Owners may use every command of this gateway.', yes: 'Make them an owner', no: 'Cancel' } },
  approveAgain: { name: 'Approve again' },
  revoke: { name: 'Revoke', sure: { question: 'Revoke access? Their running turns stop at once, and no list in the settings admits them.', yes: 'Revoke access', no: 'Cancel' } },
  ofCode: 'the person with this code',
  revoked: 'revoked', owner: 'owner', approved: 'approved',
};

/** What the settings of a platform say, in a sentence. */
export function bySettings({ platform, owners, allow, chats, unknown }) {
  const who = allow.includes('*') ? ['everybody may write'] : [
    owners.length ? `owners: ${owners.map((each) => each.slice(platform.length + 1)).join(', ')}` : null,
    allow.length ? `allowed: ${allow.join(', ')}` : null,
    chats.length ? `everybody in: ${chats.join(', ')}` : null,
  ].filter(Boolean);
  const strangers = allow.includes('*') ? null : unknown === 'pair' ? 'strangers get a pairing code' : 'strangers get no answer';
  return `${platform}: ${[who.join('; ') || 'nobody is named', strangers].filter(Boolean).join('; ')}.`;
}

// -- timelines ---------------------------------------------------------------------------------------------------------

export const TIMELINE = {
  hint: 'Enter the sender, some text of the message, or its id; or choose “Timeline” in any list. Messages in the chat have it, too.',
  none: (id) => `No message matches “${id}”. The search covers the newest 5,000; ids are deleted 30 days after their message.`,
  about: (id, platform, key) => `Message ${id} from ${platform}, conversation ${key} `,
  copyId: 'Copy the id', now: 'now',
  later: (seconds) => `${span(seconds)} later`,
  took: (seconds) => ` took ${span(seconds)}`,
  kinds: { in: 'message', turn: 'turn', step: 'step', tool: 'tool', out: 'reply', trouble: 'trouble' }, // for screen readers
};

// -- metrics -----------------------------------------------------------------------------------------------------------

export const CHARTS = {
  turns: { title: 'Turns', about: 'How many ended, and how.', answered: 'answered', stopped: 'stopped', failed: 'failed' },
  speed: { title: 'Time to an answer', about: 'From the message to the end of its turn.', p50_s: 'p50', p95_s: 'p95' },
  wrong: { title: 'Failures', about: 'Turns that failed or were interrupted, replies not delivered.', failed: 'turns failed', interrupted: 'interrupted', dead: 'replies not delivered' },
  tokens: { title: 'Tokens', about: 'What the models read and wrote.', tokens: 'tokens' },
  choose: (title) => `${title}: choose a time with the arrow keys`,
  asTable: 'As a table', tableOf: (title) => `${title} as a table`,
  from: 'From', empty: 'nothing yet', range: (from, to) => `${from} to ${to}`,
};
export const PERIODS = { 24: 'the last 24 hours', 168: 'the last 7 days', 720: 'the last 30 days' };

/** The whole period in a sentence. */
export function total(buckets, period) {
  const sum = (field) => buckets.reduce((all, each) => all + (each[field] ?? 0), 0);
  const [answered, failed, stopped, interrupted, dead, cost] = ['answered', 'failed', 'stopped', 'interrupted', 'dead', 'cost'].map(sum);
  const ended = answered + failed + stopped;
  if (!ended && !interrupted && !dead) return `No turns in ${period}.`;
  const wrong = [failed && `${failed} failed`, interrupted && `${interrupted} interrupted`, dead && `${count(dead, 'reply')} not delivered`].filter(Boolean);
  return `In ${period}: ${count(ended, 'turn')}, ${answered} answered${wrong.length ? `, ${wrong.join(', ')}` : ', nothing failed'}${cost ? `, cost ${cost.toFixed(2)}` : ''}.`;
}
