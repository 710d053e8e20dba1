// What was written and not yet taken by the gateway. It is kept in the browser, over reloads, under the id it was given when
// it was written: sent again after a lost answer, it is recognised.
import { Refused } from './line.js';

const RETRIED = new Set([401, 408, 421, 429, 500, 502, 503, 504]);

export class Outbox {
  constructor(storage, name = 'everturn.outbox') {
    this.storage = storage;
    this.name = name;
    this.memory = null; // used when the browser does not keep things for us, or has no room
  }

  /** Everything that waits, oldest first; another tab may have changed it. */
  all() {
    if (this.memory) return this.memory;
    try {
      const items = JSON.parse(this.storage.getItem(this.name) ?? '[]');
      return Array.isArray(items) ? items.filter((item) => item && typeof item.id === 'string' && typeof item.text === 'string') : [];
    } catch {
      return [];
    }
  }

  of(chat) {
    return this.all().filter((item) => item.chat === chat);
  }

  add(item) {
    this.write([...this.all(), item]);
    return item;
  }

  remove(id) {
    this.write(this.all().filter((item) => item.id !== id));
  }

  /** The gateway will not take it, whatever we do: it stays visible until its writer decides. */
  refuse(id, why) {
    this.write(this.all().map((item) => (item.id === id ? { ...item, refused: why } : item)));
  }

  /** The next to be sent. A refused one does not hold up the others. */
  next() {
    return this.all().find((item) => !item.refused) ?? null;
  }

  /** Whether what waits would survive a reload. */
  get kept() {
    return this.memory === null;
  }

  write(items) {
    try {
      this.storage.setItem(this.name, JSON.stringify(items));
      this.memory = null;
    } catch {
      this.memory = items;
    }
  }
}

/** An id that no other message has. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Whether the gateway will not take it, whatever we do. */
export const isFinal = (error) => error instanceof Refused && !RETRIED.has(error.status);

/** A function that sends what waits, in order, one run at a time. What gets no answer stays, and is sent again with the same id. */
export function flusher(outbox, deliver, loggedOut, later = (act, ms) => setTimeout(act, ms)) {
  let busy = false;
  return async function flush() {
    if (busy) return;
    busy = true;
    try {
      for (let item = outbox.next(); item; item = outbox.next()) await deliver(item);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) loggedOut();
      else later(flush, (error.retryAfter || 2) * 1000);
    } finally {
      busy = false;
    }
  };
}
