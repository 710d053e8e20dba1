// What was written and not yet taken by the gateway. It is kept in the browser, over reloads, under the id it was given when
// it was written: sent again after a lost answer, it is recognised.

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
