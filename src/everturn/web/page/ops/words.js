// What the operations page says, as pure functions of what the gateway answered: times, states, and how things are.

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

/** How long something lasts, in whole seconds: a figure that is seen to count. */
export const lasting = (seconds) => span(seconds < 10 ? Math.floor(Math.max(0, seconds)) : seconds);

/** A time of day; with the day when it was not today. */
export function moment(at, now, exact = false) {
  const when = new Date(at * 1000);
  const time = when.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: exact ? '2-digit' : undefined });
  if (when.toDateString() === new Date(now * 1000).toDateString()) return time;
  const day = Math.abs(now - at) < 6 * 86400 ? { weekday: 'short' } : { day: 'numeric', month: 'short', year: Math.abs(now - at) > 300 * 86400 ? 'numeric' : undefined };
  return `${when.toLocaleDateString([], day)} ${time}`;
}

/** One sentence that says how things are, and its tone: well, look, trouble or away. */
export function howItIs({ now, gateway, counts, platforms = [] }) {
  const c = counts;
  if (gateway.trouble) return { tone: 'trouble', words: `The database gives trouble: ${gateway.trouble}` };
  if (gateway.state && !['running', 'ready'].includes(gateway.state)) return { tone: 'look', words: `The gateway is ${gateway.state}. ${capital(whatRuns(c))}` };
  const wrong = [
    ...platforms.filter((each) => each.trouble).map((each) => `${each.name} can not be read`),
    c.dead_replies && `${count(c.dead_replies, 'reply')} ${c.dead_replies === 1 ? 'was' : 'were'} not delivered`,
    c.doubtful && `${count(c.doubtful, 'reply')} may or may not have arrived`,
    c.dead_messages && `${count(c.dead_messages, 'message')} ${c.dead_messages === 1 ? 'was' : 'were'} given up`,
    c.suspended && `${count(c.suspended, 'conversation')} ${c.suspended === 1 ? 'is' : 'are'} set aside`,
  ].filter(Boolean);
  if (wrong.length) return { tone: 'trouble', words: `${capital(listed(wrong))}.` };
  const slow = [
    waitsLong(c.outbox_oldest_at, now) && `a reply has waited ${span(now - c.outbox_oldest_at)} to be sent`,
    waitsLong(c.inbox_oldest_at, now) && `a message has waited ${span(now - c.inbox_oldest_at)} for its turn`,
  ].filter(Boolean);
  if (c.interrupted) slow.unshift(`${count(c.interrupted, 'turn')} ${c.interrupted === 1 ? 'was' : 'were'} interrupted and will go on`);
  if (c.waiting_for_approval) slow.unshift(awaiting(c.waiting_for_approval)); // somebody has to act: that is not "all well"
  if (slow.length) return { tone: 'look', words: `${capital(listed(slow))}.` };
  return { tone: 'well', words: `All well: ${whatRuns(c)}` };
}

const awaiting = (n) => `${count(n, 'turn')} ${n === 1 ? 'awaits' : 'await'} approval`;

function whatRuns(c) {
  const parts = [c.running ? `${count(c.running, 'turn')} ${c.running === 1 ? 'runs' : 'run'}` : 'no turn runs'];
  if (c.waiting_for_approval) parts.push(awaiting(c.waiting_for_approval));
  if (c.inbox_waiting) parts.push(`${count(c.inbox_waiting, 'message')} ${c.inbox_waiting === 1 ? 'waits' : 'wait'} in line`);
  if (c.outbox_owed) parts.push(`${count(c.outbox_owed, 'reply')} ${c.outbox_owed === 1 ? 'is' : 'are'} on the way`);
  if (!c.waiting_for_approval && !c.inbox_waiting && !c.outbox_owed) parts.push('nothing waits');
  return `${parts.join(', ')}.`;
}

const waitsLong = (at, now) => at !== null && at !== undefined && now - at > OLD_S;
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const listed = (parts) => (parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`);

const LIFE = { unclean: 'it was killed or crashed', restart: 'it was restarted', stop: 'it was stopped' };

/** A start that followed an end, as a sentence. */
export function recovery(each, now) {
  const ended = LIFE[each.last_life] ?? (each.last_life ? `it ended (${each.last_life})` : 'it started');
  const when = moment(each.died_at ?? each.at, now);
  const kept = [
    each.continued && `${count(each.continued, 'turn')} continued`,
    each.returned && `${count(each.returned, 'message')} put back in line`,
    each.suspended && `${count(each.suspended, 'conversation')} set aside`,
  ].filter(Boolean);
  // Of one that was killed only the last thing it wrote is known: it died then or later.
  const most = each.last_life === 'unclean' ? 'at most ' : '';
  const back = each.back_after_s === null || each.back_after_s === undefined ? '' : `, back in ${most}${span(each.back_after_s)}`;
  return `At ${when} ${ended}${back}, ${kept.join(', ') || 'nothing was under way'}.`;
}

const STATES = {
  active: 'active', working: 'works', resume_pending: 'interrupted, will go on', noted: 'goes on with the next message', suspended: 'set aside',
  running: 'running', waiting: 'waits for a yes', interrupted: 'interrupted', answered: 'answered', failed: 'failed', stopped: 'stopped', rolled_back: 'taken back',
  trouble: 'can not be read', silent: 'says nothing',
};

const REFUSED = 'the platform refused it: ';
/** Why a reply was given up, and whether it is so again after it was sent again. */
export function refusal({ error, tried_at: at, sent_again_at: asked }, now) {
  const words = error || 'not known';
  const refused = words.startsWith(REFUSED);
  return asked ? `Tried again at ${moment(at ?? asked, now)}, ${refused ? 'refused' : 'failed'} again: ${refused ? words.slice(REFUSED.length) : words}` : words;
}

export const stateName = (state) => STATES[state] ?? String(state ?? '').replaceAll('_', ' ');

const WHY = {
  stuck: 'it was running when the gateway died several times', restart_timeout: 'cut off by a restart', shutdown_timeout: 'cut off by a stop', restart_interrupted: 'the gateway ended without warning',
  'the gateway ended': 'the gateway ended while it was running', failed: 'the agent failed', suspended: 'the conversation was set aside', '/stop': 'somebody stopped it', '/new': 'a fresh conversation was begun',
  queue_full: 'too many messages were waiting', too_long: 'it is longer than what is taken', damaged: 'what is stored of it cannot be read',
  unstorable: 'it could not be stored as it came', operator: 'you did it here',
};
/** A stored reason in plain words. */
export const why = (reason) => (reason ? WHY[reason] ?? String(reason) : '');

/** What became of one message, in a sentence. `life` is what `everturn explain --json` tells. */
export function verdict(life) {
  const reply = life.replies.at(-1);
  const turn = life.turn;
  if (reply?.state === 'sent' && (!turn || turn.state === 'answered')) return { tone: 'well', words: life.kind === 'command' ? 'Done, and its answer was delivered.' : 'Answered, and the answer was delivered.' };
  if (reply?.state === 'dead') return { tone: 'trouble', words: `The reply was not delivered${because(reply.error)}.` };
  if (reply?.state === 'doubtful') return { tone: 'trouble', words: 'The reply was sent, but nobody knows whether it arrived.' };
  if (life.state === 'dead') return { tone: 'trouble', words: `No answer: it was given up${because(why(life.why))}.` };
  if (life.state === 'withdrawn') return { tone: 'look', words: `It was withdrawn before it was answered${because(why(life.why))}.` };
  if (life.state === 'expired') return { tone: 'look', words: 'It waited too long and is no longer answered.' };
  if (turn) return ofTurn(turn, reply);
  if (life.ended_at) return { tone: 'well', words: 'Done.' };
  return { tone: 'look', words: 'It is safe and waits for its turn.' };
}

function ofTurn(turn, reply) {
  const reason = why(turn.why ?? turn.reason);
  switch (turn.state) {
    case 'running': return { tone: 'well', words: turn.attempts.length > 1 ? `It is being answered, attempt ${turn.attempts.at(-1).attempt}.` : 'It is being answered.' };
    case 'waiting': return { tone: 'look', words: 'Its turn waits until somebody answers a question.' };
    case 'interrupted': return { tone: 'look', words: `Its turn was interrupted${because(reason)}; it goes on by itself.` };
    case 'stopped': return { tone: 'look', words: `Its turn was stopped${because(reason === '/stop' ? '' : reason)}.` };
    case 'rolled_back': return { tone: 'look', words: 'Its turn was taken back.' };
    case 'suspended': return { tone: 'trouble', words: 'No answer: its conversation was set aside after it was running when the gateway died several times. It can be brought back.' };
    case 'failed': return { tone: 'trouble', words: `No answer: its turn failed${because(reason === WHY.failed ? turn.failures?.at(-1)?.why : reason)}.` };
    default: return { tone: 'look', words: reply ? 'Answered; the answer is on its way.' : 'Answered.' };
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
