// The state of one conversation, and the list of items to show. A snapshot and the events after it go through the
// same rules, so a reload shows what was shown before; applying an event twice changes nothing.

const IN_PLACE = new Set(['progress', 'still_working']); // how a turn goes: of no interest when it is over
const OVER = new Set(['answered', 'failed', 'stopped', 'rolled_back', 'suspended']);

const GENERATION = 1e9; // more rows than a session has

export const isCommand = (text) => /^\s*\/[A-Za-z][\w-]*(@\w+)?(\s|$)/.test(text);
const place = (text, at) => `${at}|${text}`;

/** A conversation of which nothing is known yet. */
export function emptyTalk(chat) {
  return {
    chat, event: 0, session: null, state: 'active', title: '',
    earlier: null, // where to read on backwards
    rows: new Map(), // by seq
    said: new Map(), // accepted, and not in the transcript yet; by id
    told: new Map(), // notices, commands and their answers
    answers: new Map(), // the last text of a turn, by turn
    turns: new Map(), // state and attempt, by turn
    approvals: new Map(),
    open: null, // the turn that is open
    live: null, // what it shows right now
  };
}

/** The conversation as the gateway shows it now. */
export function fromSnapshot(chat, snap, before = null) {
  const talk = emptyTalk(chat);
  Object.assign(talk, { event: snap.event, session: snap.session_id, state: snap.state, title: snap.title, earlier: snap.earlier });
  for (const row of snap.rows) talk.rows.set(row.seq, { ...row });
  keepEarlier(talk, before);
  talk.open = snap.turn;
  if (snap.turn) talk.turns.set(snap.turn.turn, snap.turn);
  for (const each of snap.approvals) talk.approvals.set(each.id, each);
  const known = new Set([...talk.rows.values()].map((row) => row.turn).filter(Boolean));
  if (snap.turn) known.add(snap.turn.turn);
  const queued = new Set(snap.queued);
  for (const event of snap.events) remember(talk, event, known, queued);
  claimIds(talk);
  if (before?.live && snap.turn && before.live.turn === snap.turn.turn) talk.live = before.live;
  return talk;
}

/** What was read backwards stays, as long as it is the same session. */
function keepEarlier(talk, before) {
  if (before?.session !== talk.session || !talk.rows.size) return;
  const first = firstSeq(talk);
  for (const [seq, row] of before.rows) {
    if (seq < first) {
      talk.rows.set(seq, row);
      talk.earlier = before.earlier;
    }
  }
}

/** An event of the past: only what belongs to what is shown. */
function remember(talk, { seq, kind, data, at }, known, queued) {
  if (kind === 'message') {
    if (isCommand(data.text)) tellCommand(talk, data, at);
    else talk.said.set(data.id, { id: data.id, text: data.text, at, past: !queued.has(data.id) });
  } else if (kind === 'turn' && known.has(data.turn)) {
    if (talk.open?.turn !== data.turn) talk.turns.set(data.turn, { ...data, at });
  } else if (kind === 'reply' && !data.turn) {
    tellAnswer(talk, data, at);
  } else if (kind === 'reply' && known.has(data.turn)) {
    talk.answers.set(data.turn, { text: data.text, at, to: data.to });
  } else if (kind === 'notice') {
    tellNotice(talk, seq, data, at);
  }
}

/** The text of a message is in the transcript: its id goes there. What is past and not there was withdrawn or undone. */
function claimIds(talk) {
  const ids = new Map();
  for (const each of talk.said.values()) ids.set(place(each.text, each.at), each.id);
  for (const row of talk.rows.values()) {
    const id = row.role === 'user' ? row.id ?? ids.get(place(row.content, row.at)) : null;
    if (id) {
      row.id = id;
      talk.said.delete(id);
    }
  }
  for (const each of [...talk.said.values()]) if (each.past) talk.said.delete(each.id);
}

/** Rows that were said earlier, so many compactions ago; their numbers begin anew there, so they are moved below ours. */
export function addEarlier(talk, { rows, depth, earlier }) {
  addRows(talk, rows.map((row) => ({ ...row, seq: row.seq - depth * GENERATION })));
  talk.earlier = earlier;
}

/** New rows of the transcript. */
export function addRows(talk, rows) {
  for (const row of rows) {
    const id = talk.rows.get(row.seq)?.id;
    talk.rows.set(row.seq, id ? { ...row, id } : { ...row });
    if (row.outcome === 'stopped' && talk.live?.over && talk.live.turn === row.turn) talk.live = null;
  }
  claimIds(talk);
}

export const lastSeq = (talk) => [...talk.rows.keys()].reduce((a, b) => Math.max(a, b), 0);
const firstSeq = (talk) => [...talk.rows.keys()].reduce((a, b) => Math.min(a, b), Infinity);

/** Something happened. Returns what has to be read again: 'rows', 'all' or nothing. */
export function happen(talk, { seq, kind, data, at }) {
  if (seq !== null && seq <= talk.event) return '';
  if (seq !== null) talk.event = seq;
  switch (kind) {
    case 'message': return saidNow(talk, data, at);
    case 'turn': return turned(talk, data, at);
    case 'reply': return replied(talk, data, at);
    case 'notice': tellNotice(talk, seq, data, at); return '';
    case 'approval': return noteApproval(talk, data, at);
    case 'delta': talk.live = data; return '';
    case 'added':
      if (talk.live?.turn === data.turn) talk.live = { turn: data.turn, text: talk.live.text + data.text };
      return '';
    case 'step': return 'rows';
    default: return '';
  }
}

function saidNow(talk, data, at) {
  if (isCommand(data.text)) tellCommand(talk, data, at);
  else if (![...talk.rows.values()].some((row) => row.id === data.id)) talk.said.set(data.id, { id: data.id, text: data.text, at });
  return '';
}

function turned(talk, data, at) {
  const before = talk.turns.get(data.turn);
  talk.turns.set(data.turn, { ...before, ...data, at: before?.at ?? at });
  if (OVER.has(data.state)) {
    if (talk.open?.turn === data.turn) talk.open = null;
    // What was streamed of an answer that is stopped stays; its row, which is read now, takes its place.
    if (talk.live?.turn === data.turn) talk.live = data.state === 'stopped' ? { ...talk.live, over: true } : null;
    return 'rows';
  }
  talk.open = { ...talk.turns.get(data.turn) };
  if (data.state === 'running' && data.attempt > 1) talk.live = null; // the earlier attempt died: its half answer is void
  return data.attempt > 1 ? 'rows' : '';
}

function replied(talk, data, at) {
  if (data.turn) {
    talk.answers.set(data.turn, { text: data.text, at, to: data.to });
    if (talk.live?.turn === data.turn) talk.live = null;
    return '';
  }
  tellAnswer(talk, data, at);
  return 'all'; // a command may have changed anything
}

function noteApproval(talk, data, at) {
  if (data.state === undefined || data.state === 'open') talk.approvals.set(data.id, { ...data, at });
  else talk.approvals.delete(data.id);
  return '';
}

function tellCommand(talk, data, at) {
  talk.told.set(`c${data.id}`, { ...talk.told.get(`c${data.id}`), kind: 'command', id: data.id, text: data.text, at });
}

function tellAnswer(talk, data, at) {
  const key = data.to ? `c${data.to}` : `r${data.id}`;
  const command = talk.told.get(key);
  talk.told.set(key, command ? { ...command, answer: data.text } : { kind: 'notice', text: data.text, at });
}

function tellNotice(talk, seq, data, at) {
  const key = data.id ? `n${data.id}` : `e${seq}`;
  talk.told.set(key, { kind: 'notice', text: data.text, reason: data.reason, turn: data.turn ?? null, at: talk.told.get(key)?.at ?? at });
}

/** Everything to show, in order. `unsent` are messages of this browser that the gateway has not taken yet. */
export function timeline(talk, unsent = []) {
  const items = fromRows(talk);
  const later = [...talk.said.values()].map((each) => ({ key: `m${each.id}`, kind: 'user', ...each, status: statusOfSaid(talk, each) }));
  withOpenTurn(talk, items, later);
  for (const [turn, answer] of talk.answers) withAnswer(talk, items, later, turn, answer);
  later.sort((a, b) => a.at - b.at || (a.kind === 'user' ? -1 : 1));
  items.push(...later);
  for (const [key, told] of [...talk.told].sort((a, b) => a[1].at - b[1].at)) {
    if (!IN_PLACE.has(told.reason) || told.turn === talk.open?.turn) insertTold(items, { ...told, key: `x${key}` });
  }
  const shown = new Set(items.map((item) => item.key));
  for (const each of unsent) if (!shown.has(`m${each.id}`) && !shown.has(`xc${each.id}`)) items.push(unsentItem(each));
  for (const item of items) if (item.kind === 'turn') finishTurn(talk, item);
  return items;
}

function unsentItem(each) {
  const status = each.refused ? 'refused' : 'sending';
  if (isCommand(each.text)) return { key: `xc${each.id}`, kind: 'command', id: each.id, text: each.text, status, why: each.refused };
  return { key: `m${each.id}`, kind: 'user', id: each.id, text: each.text, at: each.at, status, why: each.refused };
}

function fromRows(talk) {
  const items = [];
  const groups = new Map();
  for (const row of [...talk.rows.values()].sort((a, b) => a.seq - b.seq)) {
    if (row.role === 'user') {
      items.push({ key: `m${row.id ?? `row${row.seq}`}`, kind: 'user', id: row.id, text: row.content, at: row.at, turn: row.turn, status: statusOf(talk, row.turn) });
    } else if (row.role === 'summary') {
      items.push({ key: `s${row.seq}`, kind: 'summary', text: row.content, at: row.at });
    } else {
      addToTurn(items, groups, row);
    }
  }
  return items;
}

function turnItem(turn, number, at) {
  return { key: `t${turn}.${number}`, kind: 'turn', turn, at, parts: [] };
}

function addToTurn(items, groups, row) {
  const last = items.at(-1);
  let item = last?.kind === 'turn' && last.turn === row.turn ? last : null;
  if (row.role === 'tool' && !item) item = items.findLast((each) => each.kind === 'turn' && each.turn === row.turn) ?? null;
  if (!item) {
    const number = groups.get(row.turn) ?? 0;
    groups.set(row.turn, number + 1);
    // What was streamed stood there before the command that stopped it, though it was written with the command.
    item = turnItem(row.turn, number, row.outcome === 'stopped' ? last?.at ?? row.at : row.at);
    items.push(item);
  }
  if (row.role === 'tool') {
    const call = items.flatMap((each) => (each.turn === row.turn ? each.parts ?? [] : [])).findLast((part) => part.kind === 'call' && part.id === row.call_id && part.result === undefined);
    if (call) Object.assign(call, { result: row.content, unknown: Boolean(row.unknown), outcome: row.outcome ?? '', cut: Boolean(row.cut) });
    return;
  }
  if (row.outcome === 'stopped') item.stopped = true;
  if (row.content) item.parts.push({ kind: 'text', text: row.content, final: !row.calls?.length });
  for (const call of row.calls ?? []) item.parts.push({ kind: 'call', id: call.id, name: call.name, arguments: call.arguments });
}

/** The item in which a turn goes on: its last one, or a new one beneath the message that it answers. */
function lastOfTurn(items, later, turn, at) {
  let item = items.findLast((each) => each.turn === turn);
  if (item?.kind !== 'turn') {
    const number = items.filter((each) => each.kind === 'turn' && each.turn === turn).length;
    if (item) items.splice(items.indexOf(item) + 1, 0, (item = turnItem(turn, number, item.at)));
    else later.push((item = turnItem(turn, 0, at)));
  }
  return item;
}

function withOpenTurn(talk, items, later) {
  const open = talk.open;
  if (talk.live?.over) {
    const item = lastOfTurn(items, later, talk.live.turn, talk.turns.get(talk.live.turn)?.at);
    item.parts.push({ kind: 'text', text: talk.live.text, final: true });
    item.stopped = true;
  }
  if (!open) return;
  const item = lastOfTurn(items, later, open.turn, open.at);
  item.open = open.state;
  item.attempt = open.attempt;
  if (talk.live?.turn === open.turn) item.parts.push({ kind: 'text', text: talk.live.text, live: true });
  item.approvals = [...talk.approvals.values()].filter((each) => !each.turn || each.turn === open.turn);
}

function withAnswer(talk, items, later, turn, answer) {
  const item = items.findLast((each) => each.kind === 'turn' && each.turn === turn) ?? later.find((each) => each.kind === 'turn' && each.turn === turn);
  if (item) {
    const last = item.parts.at(-1);
    if (last?.kind === 'text' && (last.final || last.live)) item.parts.pop();
    item.parts.push({ kind: 'text', text: answer.text, final: true });
  } else if (talk.turns.has(turn)) {
    const made = turnItem(turn, 0, talk.turns.get(turn).at);
    made.parts.push({ kind: 'text', text: answer.text, final: true });
    later.push(made);
  }
}

function insertTold(items, told) {
  let at = items.length;
  while (at > 0 && items[at - 1].at > told.at) at -= 1;
  items.splice(at, 0, told);
}

function finishTurn(talk, item) {
  const turn = talk.turns.get(item.turn);
  item.state = item.open ?? (turn && OVER.has(turn.state) ? turn.state : item.stopped ? 'stopped' : 'answered');
  if (turn?.attempt > 1) item.attempt = turn.attempt;
}

function statusOf(talk, turn) {
  if (talk.open?.turn === turn) return 'saved';
  const state = talk.turns.get(turn)?.state ?? 'answered';
  return { answered: 'answered', failed: 'failed', stopped: 'stopped', suspended: 'failed', rolled_back: 'stopped' }[state] ?? 'saved';
}

function statusOfSaid(talk, said) {
  for (const [turn, answer] of talk.answers) if (answer.to === said.id) return talk.turns.get(turn)?.state === 'failed' ? 'failed' : 'answered';
  return 'saved';
}
