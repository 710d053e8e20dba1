// What a conversation shows: snapshots and events lead to the same, however often they come.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addEarlier, addRows, emptyTalk, fromSnapshot, happen, lastSeq, timeline } from '../../../src/everturn/web/page/talk.js';

const EVENTS = [
  { seq: 1, kind: 'message', at: 10, data: { id: 'a', text: 'hello' } },
  { seq: 2, kind: 'turn', at: 11, data: { turn: '7', state: 'running', attempt: 1 } },
  { seq: 3, kind: 'reply', at: 15, data: { turn: '7', id: '7', text: 'hi there', to: 'a' } },
  { seq: 4, kind: 'turn', at: 15, data: { turn: '7', state: 'answered', attempt: 1 } },
];
const ROWS = [
  { seq: 1, role: 'user', content: 'hello', at: 10, turn: '7' },
  { seq: 2, role: 'assistant', content: 'let me look', at: 12, turn: '7', calls: [{ id: 'c1', name: 'look', arguments: '{}' }] },
  { seq: 3, role: 'tool', content: 'found', at: 13, turn: '7', call_id: 'c1' },
  { seq: 4, role: 'assistant', content: 'hi there', at: 15, turn: '7' },
];
const SNAP = { event: 4, session_id: 's', state: 'active', title: '', earlier: null, rows: ROWS, events: EVENTS, queued: [], turn: null, approvals: [], now: 20 };
const fold = (events, talk = emptyTalk('c')) => {
  for (const event of events) happen(talk, event);
  return talk;
};
const seen = (items) => items.map((item) => [item.key, item.kind, item.status ?? item.state, item.text ?? item.parts?.at(-1)?.text]);

test('a message is saved, then answered', () => {
  const talk = fold(EVENTS.slice(0, 2));
  assert.deepEqual(seen(timeline(talk)), [['ma', 'user', 'saved', 'hello'], ['t7.0', 'turn', 'running', undefined]]);
  fold(EVENTS, talk);
  assert.deepEqual(seen(timeline(talk)), [['ma', 'user', 'answered', 'hello'], ['t7.0', 'turn', 'answered', 'hi there']]);
});

test('events that come twice change nothing', () => {
  assert.deepEqual(timeline(fold([...EVENTS, ...EVENTS])), timeline(fold(EVENTS)));
});

test('a reload shows what was shown before', () => {
  const live = fold(EVENTS);
  addRows(live, ROWS);
  assert.deepEqual(timeline(fromSnapshot('c', SNAP)), timeline(live));
  assert.deepEqual(timeline(fromSnapshot('c', SNAP)).at(-1).parts.map((part) => part.kind), ['text', 'call', 'text']);
});

test('what the last attempt said replaces what the one before said, in the same message', () => {
  const talk = fold(EVENTS.slice(0, 2));
  happen(talk, { seq: null, kind: 'delta', at: 12, data: { turn: '7', text: 'half an ans' } });
  const [, before] = timeline(talk);
  happen(talk, { seq: 3, kind: 'turn', at: 13, data: { turn: '7', state: 'interrupted' } });
  assert.equal(timeline(talk)[1].state, 'interrupted');
  happen(talk, { seq: 4, kind: 'turn', at: 14, data: { turn: '7', state: 'running', attempt: 2 } });
  happen(talk, { seq: null, kind: 'added', at: 15, data: { turn: '7', text: 'of a text that is void' } });
  assert.equal(talk.live, null);
  happen(talk, { seq: null, kind: 'delta', at: 15, data: { turn: '7', text: 'a' } });
  happen(talk, { seq: null, kind: 'added', at: 15, data: { turn: '7', text: ' new' } });
  const [, after] = timeline(talk);
  assert.equal(after.key, before.key);
  assert.deepEqual(after.parts.map((part) => part.text), ['a new']);
});

test('what was streamed of an answer that is stopped stays, and a reload shows the same', () => {
  const said = { seq: 3, kind: 'message', at: 12.5, data: { id: 'k', text: '/stop' } };
  const stop = { seq: 4, kind: 'turn', at: 13, data: { turn: '7', state: 'stopped' } };
  const row = { seq: 2, role: 'assistant', content: 'half an ans', at: 13, turn: '7', outcome: 'stopped' };
  const talk = fold(EVENTS.slice(0, 2));
  addRows(talk, ROWS.slice(0, 1));
  happen(talk, { seq: null, kind: 'delta', at: 12, data: { turn: '7', text: 'half an ans' } });
  happen(talk, said);
  assert.equal(happen(talk, stop), 'rows');
  const meanwhile = timeline(talk);
  assert.deepEqual(seen(meanwhile), [['ma', 'user', 'stopped', 'hello'], ['t7.0', 'turn', 'stopped', 'half an ans'], ['xck', 'command', undefined, '/stop']]);
  addRows(talk, [row]);
  assert.deepEqual(seen(timeline(talk)), seen(meanwhile));
  const snap = { ...SNAP, event: 4, rows: [ROWS[0], row], events: [...EVENTS.slice(0, 2), said, stop] };
  assert.deepEqual(timeline(fromSnapshot('c', snap)), timeline(talk));
  assert.equal(timeline(fromSnapshot('c', { ...snap, events: [] })).at(-1).state, 'stopped'); // events are forgotten
});

test('a call says how it ended', () => {
  const ended = (outcome) => timeline(fromSnapshot('c', { ...SNAP, rows: ROWS.map((row) => (row.role === 'tool' ? { ...row, outcome } : row)) })).at(-1).parts[1].outcome;
  assert.deepEqual([ended(undefined), ended('failed'), ended('skipped')], ['', 'failed', 'skipped']);
});

test('what was not sent stands at the end, under the id it keeps', () => {
  const talk = fold(EVENTS.slice(0, 1));
  const unsent = [{ chat: 'c', id: 'a', text: 'hello', at: 9 }, { chat: 'c', id: 'b', text: 'more', at: 10 }, { chat: 'c', id: 'd', text: 'x', at: 11, refused: 'too long' }];
  assert.deepEqual(seen(timeline(talk, unsent)), [['ma', 'user', 'saved', 'hello'], ['mb', 'user', 'sending', 'more'], ['md', 'user', 'refused', 'x']]);
});

test('what was undone or withdrawn is gone after a reload', () => {
  const snap = { ...SNAP, rows: [] };
  assert.deepEqual(timeline(fromSnapshot('c', snap)), []);
});

test('a queued message is shown, one that a turn took is not shown twice', () => {
  const events = [...EVENTS, { seq: 5, kind: 'message', at: 16, data: { id: 'b', text: 'next' } }];
  const items = timeline(fromSnapshot('c', { ...SNAP, event: 5, events, queued: ['b'] }));
  assert.deepEqual(items.map((item) => item.key), ['ma', 't7.0', 'mb']);
});

test('a command stands with its answer, where it was given', () => {
  const events = [
    { seq: 5, kind: 'message', at: 16, data: { id: 'k', text: '/status' } },
    { seq: 6, kind: 'reply', at: 16, data: { turn: null, id: '9', text: 'all is well', to: 'k', command: 'status' } },
  ];
  const live = fold([...EVENTS, ...events]);
  addRows(live, ROWS);
  assert.deepEqual([timeline(live).at(-1).kind, timeline(live).at(-1).answer], ['command', 'all is well']);
  assert.deepEqual(timeline(fromSnapshot('c', { ...SNAP, event: 6, events: [...EVENTS, ...events] })), timeline(live));
  assert.equal(happen(fold(EVENTS), { ...events[1], seq: 7 }), 'all');
});

test('a notice with an id is replaced, not repeated', () => {
  const notice = (seq, text) => ({ seq, kind: 'notice', at: 20 + seq, data: { id: 'p', text, reason: 'working' } });
  const items = timeline(fold([notice(1, 'one minute'), notice(2, 'two minutes')]));
  assert.deepEqual(items.map((item) => item.text), ['two minutes']);
});

test('progress of a turn is shown while it runs', () => {
  const talk = fold([...EVENTS.slice(0, 2), { seq: 3, kind: 'notice', at: 12, data: { id: '8', turn: '7', text: 'still working', reason: 'still_working' } }]);
  assert.ok(timeline(talk).some((item) => item.text === 'still working'));
  happen(talk, { ...EVENTS[3], seq: 5 });
  assert.ok(!timeline(talk).some((item) => item.text === 'still working'));
});

test('an approval request is a part of its turn until it is answered', () => {
  const events = [
    ...EVENTS.slice(0, 2),
    { seq: 3, kind: 'approval', at: 12, data: { id: '5', turn: '7', tool: 'shell', state: 'open', request: 'rm?' } },
    { seq: 4, kind: 'turn', at: 12, data: { turn: '7', state: 'awaiting_approval', attempt: 1 } },
  ];
  const talk = fold(events);
  assert.equal(timeline(talk)[1].approvals[0].request, 'rm?');
  happen(talk, { seq: 5, kind: 'approval', at: 13, data: { id: '5', turn: '7', tool: 'shell', state: 'approved' } });
  assert.deepEqual(timeline(talk)[1].approvals, []);
});

test('a message that joined a running turn splits its item', () => {
  const rows = [...ROWS.slice(0, 3), { seq: 4, role: 'user', content: 'faster', at: 13.5, turn: '7' }, { ...ROWS[3], seq: 5 }];
  const items = timeline(fromSnapshot('c', { ...SNAP, rows }));
  assert.deepEqual(items.map((item) => item.key), ['ma', 't7.0', 'mrow4', 't7.1']);
  assert.equal(items[3].parts[0].text, 'hi there');
});

test('what was said before the conversation was summed up stands above it, and a reload keeps it', () => {
  const place = { session_id: 'p', before: 9e15, depth: 1 };
  const snap = { ...SNAP, earlier: place, rows: [{ seq: 1, role: 'summary', content: 'whales', at: 9 }, ...ROWS.map((row) => ({ ...row, seq: row.seq + 1 }))] };
  const talk = fromSnapshot('c', snap);
  addEarlier(talk, { depth: 1, earlier: null, rows: [{ seq: 1, role: 'user', content: 'old', at: 1, turn: '3' }, { seq: 2, role: 'assistant', content: 'older', at: 2, turn: '3' }] });
  const shown = timeline(talk);
  assert.deepEqual(shown.slice(0, 3).map((item) => item.text ?? item.parts[0].text), ['old', 'older', 'whales']);
  const again = fromSnapshot('c', snap, talk);
  assert.deepEqual(timeline(again), shown);
  assert.equal(again.earlier, null);
  assert.equal(lastSeq(again), ROWS.length + 1);
  assert.equal(fromSnapshot('c', { ...snap, session_id: 'other' }, talk).earlier, place);
});
