// Messages that are not sent yet, and the reading of events.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lines } from '../../../src/everturn/web/page/line.js';
import { Outbox, newId } from '../../../src/everturn/web/page/outbox.js';

class Storage {
  constructor(room = 1e6) {
    this.room = room;
    this.kept = new Map();
  }

  getItem(name) {
    return this.kept.get(name) ?? null;
  }

  setItem(name, text) {
    if (text.length > this.room) throw new Error('full');
    this.kept.set(name, text);
  }
}

test('what waits outlives the page, in order', () => {
  const storage = new Storage();
  new Outbox(storage).add({ chat: 'c', id: '1', text: 'a' });
  new Outbox(storage).add({ chat: 'c', id: '2', text: 'b' });
  const other = new Outbox(storage);
  assert.deepEqual(other.of('c').map((item) => item.id), ['1', '2']);
  other.remove('1');
  assert.equal(new Outbox(storage).next().id, '2');
});

test('what is refused stays, and holds up nobody', () => {
  const outbox = new Outbox(new Storage());
  outbox.add({ chat: 'c', id: '1', text: 'a' });
  outbox.add({ chat: 'c', id: '2', text: 'b' });
  outbox.refuse('1', 'too long');
  assert.equal(outbox.next().id, '2');
  assert.equal(outbox.all()[0].refused, 'too long');
});

test('without room it is kept in memory, and says so', () => {
  const outbox = new Outbox(new Storage(50));
  outbox.add({ chat: 'c', id: '1', text: 'x'.repeat(100) });
  assert.deepEqual([outbox.next().id, outbox.kept], ['1', false]);
});

test('damage in the storage is nothing', () => {
  const storage = new Storage();
  for (const text of ['{', '7', '[1, null, {"id": 3}]']) {
    storage.setItem('everturn.outbox', text);
    assert.deepEqual(new Outbox(storage).all(), []);
  }
});

test('ids differ', () => {
  assert.equal(new Set(Array.from({ length: 100 }, newId)).size, 100);
});

test('events are read wherever they are cut', () => {
  const text = 'retry: 1000\n\n: still here\n\nid: 4\nevent: message\nat: 1.5\ndata: {"text": "a: b"}\n\nevent: delta\ndata: {"turn": "7"}\n\n';
  for (let cut = 0; cut < text.length; cut += 1) {
    const lines = new Lines();
    const heard = [...lines.feed(text.slice(0, cut)), ...lines.feed(text.slice(cut))];
    assert.deepEqual(heard.map(({ seq, kind, data }) => [seq, kind, data]), [[4, 'message', { text: 'a: b' }], [null, 'delta', { turn: '7' }]]);
    assert.equal(heard[0].at, 1.5);
  }
});
