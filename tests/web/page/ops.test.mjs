// The pure parts of the operations page: its texts, its charts, and actions whose answer was lost.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Disconnected, Refused } from '../../../src/everturn/web/page/line.js';
import { Acts } from '../../../src/everturn/web/page/ops/acts.js';
import { bars, labelled, path, summed, ticks, wholeTicks } from '../../../src/everturn/web/page/ops/chart.js';
import { plainId } from '../../../src/everturn/web/page/ops/lists.js';
import { lasting, moment, recovery, refusal, short, span, statusLine, total, verdict } from '../../../src/everturn/web/page/ops/texts.js';
import { holding } from '../../../src/everturn/web/page/ops/timeline.js';
import { many } from '../../../src/everturn/web/page/ops/views.js';

const NOW = 1_800_000_000;
const NONE = { running: 0, awaiting_approval: 0, interrupted: 0, inbox_queued: 0, inbox_oldest_at: null, outbox_pending: 0, outbox_oldest_at: null, outbox_unknown: 0, dead_replies: 0, dead_messages: 0, suspended: 0 };
const status = (counts, gateway = {}) => statusLine({ now: NOW, gateway: { state: 'running', trouble: null, ...gateway }, counts: { ...NONE, ...counts } });

test('one sentence says the state of the gateway', () => {
  const table = [
    [{}, 'well', 'All well: no turn running, nothing queued.'],
    [{ running: 2 }, 'well', 'All well: 2 turns running, nothing queued.'],
    [{ running: 1, outbox_pending: 1, outbox_oldest_at: NOW - 2 }, 'well', 'All well: 1 turn running, 1 reply sending.'],
    [{ inbox_queued: 2, inbox_oldest_at: NOW }, 'well', 'All well: no turn running, 2 messages queued.'],
    [{ awaiting_approval: 1 }, 'look', '1 turn is awaiting approval.'],
    [{ awaiting_approval: 1, running: 2, inbox_queued: 2, inbox_oldest_at: NOW }, 'look', '1 turn is awaiting approval.'],
    [{ awaiting_approval: 2, interrupted: 1 }, 'look', '2 turns are awaiting approval and 1 turn was interrupted and will resume.'],
    [{ awaiting_approval: 1, dead_replies: 1 }, 'trouble', '1 reply was not delivered.'],
    [{ interrupted: 1, running: 2 }, 'look', '1 turn was interrupted and will resume.'],
    [{ dead_replies: 3 }, 'trouble', '3 replies were not delivered.'],
    [{ dead_replies: 1, outbox_unknown: 2, dead_messages: 1, suspended: 2 }, 'trouble', '1 reply was not delivered, the delivery of 2 replies is unknown, 1 message failed and 2 conversations are suspended.'],
    [{ outbox_pending: 1, outbox_oldest_at: NOW - 420 }, 'look', 'A reply has been sending for 7 min.'],
  ];
  for (const [counts, tone, text] of table) assert.deepEqual(status(counts), { tone, text });
  assert.equal(status({ dead_replies: 1 }, { trouble: 'disk full' }).text, 'Database error: disk full');
  const troubled = statusLine({ now: NOW, gateway: { state: 'running' }, counts: { ...NONE, dead_replies: 1 }, platforms: [{ name: 'telegram', trouble: 'no answer' }, { name: 'api', trouble: null }] });
  assert.deepEqual(troubled, { tone: 'trouble', text: 'Telegram is not receiving and 1 reply was not delivered.' });
  assert.equal(status({}, { state: 'stopping' }).text, 'The gateway is stopping. No turn running, nothing queued.');
  assert.equal(status({ awaiting_approval: 1 }, { state: 'stopping' }).text, 'The gateway is stopping. No turn running, 1 turn awaiting approval.');
});

test('lengths of time have at most two units', () => {
  const table = { 0: '0 s', 0.83: '0.8 s', 9.96: '10 s', 12.4: '12 s', 59.6: '1 min', 60: '1 min', 125: '2 min 5 s', 3599: '59 min', 3600: '1 h', 7500: '2 h 5 min', 90000: '1 d 1 h' };
  for (const [seconds, text] of Object.entries(table)) assert.equal(span(Number(seconds)), text);
  assert.equal(lasting(2.9), '2 s');
  assert.equal(lasting(-1), '0 s');
});

test('a time of another day names the day', () => {
  assert.doesNotMatch(moment(NOW, NOW), /[A-Za-z]{3} /);
  assert.match(moment(NOW - 2 * 86400, NOW), /^\p{L}+ \d/u);
});

test('a recovery is a sentence', () => {
  const each = { at: NOW, previous_exit: 'unclean', died_at: NOW - 1, back_after_s: 0.8, continued: 3, suspended: 0, returned: 1 };
  assert.match(recovery(each, NOW), /^At .* the gateway was killed or crashed, ready after at most 0\.8 s, 3 turns resumed, 1 message queued again\.$/);
  assert.match(recovery({ ...each, previous_exit: 'restart' }, NOW), /the gateway restarted, ready after 0\.8 s/);
  assert.match(recovery({ ...each, previous_exit: 'stop', back_after_s: null, continued: 0, returned: 0 }, NOW), /the gateway was stopped, nothing was running\.$/);
});

test('the outcome of a message is a sentence', () => {
  const turn = { state: 'answered', why: null, reason: null, attempts: [{ attempt: 1 }] };
  const message = { kind: 'message', state: 'done', why: null, ended_at: NOW, turn, replies: [{ state: 'sent', error: null }] };
  const table = [
    [{}, 'well', /answer was delivered/],
    [{ replies: [{ state: 'dead', error: 'blocked by the user' }] }, 'trouble', /was not delivered: blocked by the user\.$/],
    [{ replies: [{ state: 'unknown' }] }, 'trouble', /delivery is unknown/],
    [{ replies: [], state: 'dead', why: 'failed' }, 'trouble', /message failed: the agent failed/],
    [{ replies: [], turn: { ...turn, state: 'suspended' } }, 'trouble', /suspended/],
    [{ replies: [], turn: { ...turn, state: 'failed', why: 'failed', failures: [{ why: 'the key is wrong' }] } }, 'trouble', /failed: the key is wrong/],
    [{ replies: [], turn: { ...turn, state: 'interrupted', reason: 'restart_timeout' } }, 'look', /cut off by a restart; the gateway will resume it/],
    [{ replies: [], turn: null, ended_at: null, state: 'queued' }, 'look', /saved and queued/],
    [{ replies: [], turn: null, state: 'withdrawn', why: '/new' }, 'look', /withdrawn/],
  ];
  for (const [change, tone, text] of table) {
    const found = verdict({ ...message, ...change });
    assert.equal(found.tone, tone);
    assert.match(found.text, text);
  }
});

test('a reply that was sent again in vain says so', () => {
  const error = 'the platform refused it: blocked';
  assert.equal(refusal({ error }, NOW), error);
  assert.match(refusal({ error, tried_at: NOW - 60, sent_again_at: NOW - 61 }, NOW), /^Sent again at .*, refused again: blocked$/);
  assert.match(refusal({ error: 'no answer', sent_again_at: NOW }, NOW), /failed again: no answer$/);
});

test('a message is found by its sender or its text', () => {
  const messages = [{ sender: 'Bob', text: 'hello', message: '1' }, { sender: null, text: 'ask bob', message: '2' }, { sender: 'Ann', text: null, message: '3' }];
  assert.deepEqual(holding('bob', messages).map((each) => each.message), ['1', '2']);
});

test('ids and numbers are short', () => {
  assert.deepEqual(['m1', 'm1@chat', 'a%40b@chat', 'x%2540@y'].map(plainId), ['m1', 'm1', 'a@b', 'x%40']);
  assert.deepEqual([null, 0, 7.25, 12_400, 3_400_000].map(short), ['–', '0', '7.3', '12.4 k', '3.4 M']);
});

test('an axis has round numbers and room for the highest', () => {
  for (const most of [0.03, 0.7, 1, 3, 9, 10, 11, 95, 1234]) {
    const found = ticks(most);
    assert.equal(found[0], 0);
    assert.ok(found.at(-1) >= most && found.length >= 2 && found.length <= 6, `${most}: ${found}`);
  }
  assert.deepEqual([wholeTicks(1), wholeTicks(3)], [[0, 1], [0, 1, 2, 3]]);
  assert.deepEqual([labelled(96, 480), labelled(3, 480)], [[0, 16, 32, 48, 64, 80], [0, 1, 2]]);
});

test('bars are stacked within their box, lines break where nothing was', () => {
  const box = { x: 10, y: 5, width: 100, height: 50 };
  const drawn = bars([{ a: 1, b: 3 }, { a: 0, b: 0 }], ['a', 'b'], box, 4);
  assert.deepEqual(drawn.map(({ name, y, height }) => [name, y, height]), [['a', 42.5, 12.5], ['b', 5, 37.5]]);
  assert.deepEqual(path([{ v: 1 }, { v: 2 }, { v: null }, { v: 2 }], 'v', box, 2), { line: 'M22.5 30L47.5 5', dots: [{ x: 97.5, y: 5 }] });
  assert.deepEqual(summed([{ at: 3, a: 1 }, { at: 4, a: 2 }, { at: 5, a: 4 }], ['a'], 2, 1), [{ at: 3, a: 3 }, { at: 5, a: 4 }]);
});

test('the metrics of a period are a sentence', () => {
  assert.equal(total([{ answered: 0 }], 'the last 24 hours'), 'No turns in the last 24 hours.');
  assert.equal(total([{ answered: 2, failed: 1 }, { answered: 1, dead: 1 }], 'the last 7 days'), 'In the last 7 days: 4 turns, 3 answered, 1 failed, 1 reply not delivered.');
});

const SEND = { name: 'Send again', of: 'reply to Bob', done: 'The reply to Bob is being sent.' };

class Storage {
  kept = new Map();

  getItem(name) {
    return this.kept.get(name) ?? null;
  }

  setItem(name, text) {
    this.kept.set(name, text);
  }
}

function desk(storage, answers) {
  const [asked, told, waiting] = [[], [], []];
  const tell = { changed() {}, done() {}, said: (text, ok) => told.push([text, ok]), loggedOut: () => told.push(['out', false]) };
  const send = async (route, body) => {
    asked.push([route, body]);
    const next = answers.shift();
    if (next instanceof Error) throw next;
    return next;
  };
  return { acts: new Acts(storage, tell, send, (again) => waiting.push(again)), asked, told, waiting };
}

test('an action whose answer was lost is requested again under its id, also after a reload', async () => {
  const storage = new Storage();
  const first = desk(storage, [new Disconnected('cut')]);
  first.acts.begin('/act', { reply: '7', action: 'send' }, 'reply 7', SEND);
  await new Promise(setImmediate);
  first.acts.begin('/act', { reply: '7', action: 'drop' }, 'reply 7', { name: 'Drop' }); // not while the first is open
  assert.equal(first.acts.pending('reply 7').name, 'Send again');
  assert.equal(first.waiting.length, 1);
  const second = desk(storage, [{ done: true, said: 'It goes out.' }]);
  await second.acts.flush();
  assert.deepEqual(second.asked, first.asked);
  assert.match(second.asked[0][1].id, /^[0-9a-f]{32}$/);
  assert.deepEqual([second.told, second.acts.pending('reply 7')], [[['The reply to Bob is being sent.', true]], null]);
});

test('a refusal ends an action with its reason, and holds up no other', async () => {
  const { acts, asked, told } = desk(new Storage(), [new Refused(409, 'it was sent meanwhile'), { said: 'Dropped.' }]);
  acts.begin('/act', {}, 'reply 1', SEND);
  acts.begin('/act', {}, 'reply 2', { name: 'Drop', of: 'reply to Ann' });
  await new Promise(setImmediate);
  assert.equal(asked.length, 2);
  assert.deepEqual([acts.whyNot('reply 1'), acts.whyNot('reply 2'), acts.pending('reply 1')], ['it was sent meanwhile', null, null]);
  assert.deepEqual(told, [['Reply to Bob: not done: it was sent meanwhile', false], ['Reply to Ann: Dropped.', true]]);
});

test('a logout keeps the requested actions', async () => {
  const { acts, told } = desk(new Storage(), [new Refused(401, 'who are you')]);
  acts.begin('/act', {}, 'reply 1', SEND);
  await new Promise(setImmediate);
  assert.deepEqual([told, acts.pending('reply 1').name], [[['out', false]], 'Send again']);
});

test('a long list is read page by page, as far as it is wanted', async () => {
  const rows = Array.from({ length: 450 }, (_, n) => n);
  const look = async (path) => {
    const query = new URL(path, 'http://here').searchParams;
    const [from, limit] = [Number(query.get('after') ?? 0), Number(query.get('limit'))];
    assert.ok(limit <= 200);
    return { list: rows.slice(from, from + limit), next: from + limit < rows.length ? from + limit : null };
  };
  assert.equal((await many('/list?a=1', 'list', 50, look)).list.length, 50);
  assert.equal((await many('/list?a=1', 'list', 400, look)).next, 400);
  assert.deepEqual((await many('/list?a=1', 'list', 2000, look)).list, rows);
});
