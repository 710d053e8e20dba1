// What each view asks the gateway for, and how it shows the answer. A view is read again as a whole; tables keep what is the same.
import { $, el, markCurrent } from '../dom.js';
import { Disconnected, ask } from '../line.js';
import { instancesTable, messagesTable, platformsTable, repliesTable, sessionsTable, turnsTable } from './lists.js';
import { since } from './table.js';
import { CAPTIONS, MESSAGE_LISTS, PAGE, TILES, recovery } from './texts.js';

const FEW = 10;
const PAGE_ROWS = 50;
const MOST = 200; // the gateway gives so many at once
const SHOWN = 2000;

/** A list as far as it is wanted, page by page. */
export async function many(path, field, limit, look = ask) {
  let found = await look(`${path}&limit=${Math.min(limit, MOST)}`);
  const rows = found[field];
  while (found.next && rows.length < limit) {
    found = await look(`${path}&limit=${Math.min(limit - rows.length, MOST)}&after=${encodeURIComponent(found.next)}`);
    rows.push(...found[field]);
  }
  return { ...found, [field]: rows };
}

const further = (limit) => Math.min(SHOWN, limit + (limit < MOST ? PAGE_ROWS : MOST));

/** A tile: a count, where more of it is, the age it shows, and whether it is bad. */
const SHOWN_COUNTS = [
  ['open', '#now'],
  ['awaiting_approval', '#now'],
  ['inbox_queued', '#messages=queued', 'inbox_oldest_at'],
  ['outbox_pending', '#messages=pending', 'outbox_oldest_at'],
  ['dead_replies', '#messages=dead', null, true],
  ['outbox_unknown', '#messages=unknown', null, true],
  ['dead_messages', '#messages=dead_messages', null, true],
  ['suspended', '#sessions=suspended', null, true],
];

/** As many as there are rows below it. */
const openTurns = (c) => c.running + c.awaiting_approval + c.interrupted;

export class Now {
  constructor(acts) {
    this.lists = {
      dead: repliesTable('needs-dead', acts, 'dead'),
      unknown: repliesTable('needs-unknown', acts, 'unknown'),
      deadMessages: messagesTable('needs-dead_messages', acts, 'dead_messages'),
      suspended: sessionsTable('needs-suspended', acts, CAPTIONS.suspended, false),
    };
    this.turns = turnsTable('turns', acts);
    this.platforms = platformsTable('platforms');
    this.instances = instancesTable('instances');
    this.tiles = new Map();
  }

  /** Only what the overview says is there. */
  async load(_, { counts: c }) {
    const some = (n, path, field) => (n ? ask(`/ops/api/${path}&limit=${FEW}`).then((found) => found[field]) : []);
    const [turns, dead, unknown, deadMessages, suspended] = await Promise.all([
      openTurns(c) ? ask(`/ops/api/turns?state=open&limit=${PAGE_ROWS}`).then((found) => found.turns) : [],
      some(c.dead_replies, 'outbox?state=dead', 'replies'),
      some(c.outbox_unknown, 'outbox?state=unknown', 'replies'),
      some(c.dead_messages, 'inbox?state=dead', 'messages'),
      some(c.suspended, 'sessions?state=suspended', 'sessions'),
    ]);
    return { turns, dead, unknown, deadMessages, suspended };
  }

  show(found, overview) {
    this.glance(overview);
    const { lists } = this;
    $('needs').hidden = false; // a row's focus may only move to what can be seen
    for (const name of Object.keys(lists)) lists[name].show(found[name]);
    const none = Object.keys(lists).every((name) => !found[name].length);
    if (none && $('needs').contains(document.activeElement)) $('status').focus({ preventScroll: true });
    $('needs').hidden = none;
    this.turns.show(found.turns);
  }

  /** Show what the overview alone holds. */
  glance(overview) {
    this.showTiles(overview);
    this.platforms.show(overview.platforms ?? []);
    this.instances.show(overview.instances ?? []);
    this.showRecoveries(overview);
  }

  again() {
    for (const each of [...Object.values(this.lists), this.turns]) each.show();
  }

  showTiles({ counts }) {
    for (const [name, href, oldest, bad] of SHOWN_COUNTS) {
      const value = name === 'open' ? openTurns(counts) : counts[name] ?? 0;
      let tile = this.tiles.get(name);
      if (!tile) {
        tile = { link: el('a', { href }), number: el('strong'), age: el('span', { class: 'faint' }) };
        tile.link.append(tile.number, el('span', {}, TILES[name]), tile.age);
        $('tiles').append(el('li', {}, tile.link));
        this.tiles.set(name, tile);
      }
      if (tile.number.textContent !== String(value)) tile.number.textContent = String(value);
      tile.link.classList.toggle('bad', Boolean(bad && value));
      tile.link.classList.toggle('none', !value);
      const at = value && oldest ? counts[oldest] : null;
      if (tile.at !== at) tile.age.replaceChildren(...(at ? [TILES.oldest, since(at)] : []));
      tile.at = at;
    }
  }

  showRecoveries({ recoveries = [], now }) {
    const lines = recoveries.map((each) => recovery(each, now));
    const shape = JSON.stringify(lines);
    $('recoveries-none').hidden = lines.length > 0;
    if (shape === this.shape) return;
    this.shape = shape;
    $('recoveries').replaceChildren(...lines.map((line, n) => el('li', { class: recoveries[n].previous_exit === 'unclean' ? 'unclean' : null }, line)));
  }
}

const mark = (place, hash) => markCurrent($(place).querySelectorAll('a'), (link) => link.hash === hash, 'true');

export class Sessions {
  constructor(acts, reread) {
    this.table = sessionsTable('sessions', acts);
    this.limit = PAGE_ROWS;
    let timer = null;
    $('session-query').addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(reread, 200);
    });
    $('session-states').addEventListener('click', (event) => {
      if (!event.target.closest('a')?.hash.endsWith('=all') || !$('session-query').value) return;
      $('session-query').value = '';
      reread();
    });
    $('sessions-more').addEventListener('click', () => {
      this.limit = further(this.limit);
      reread();
    });
  }

  async load(state) {
    this.state = state || 'all';
    const query = $('session-query').value.trim();
    return many(`/ops/api/sessions?state=${this.state}${query ? `&q=${encodeURIComponent(query)}` : ''}`, 'sessions', this.limit);
  }

  show({ sessions, next }) {
    mark('session-states', `#sessions=${this.state}`);
    this.table.show(sessions);
    $('sessions-more').hidden = !next || this.limit >= SHOWN;
  }

  again() {
    this.table.show();
  }
}

/** The lists of messages: where they are read, their field, and their count. */
const LISTS = {
  queued: ['inbox?state=queued', 'messages', 'inbox_queued'],
  pending: ['outbox?state=pending', 'replies', 'outbox_pending'],
  dead: ['outbox?state=dead', 'replies', 'dead_replies'],
  unknown: ['outbox?state=unknown', 'replies', 'outbox_unknown'],
  dead_messages: ['inbox?state=dead', 'messages', 'dead_messages'],
};
const LOOKED_AT = ['dead', 'unknown', 'dead_messages', 'pending'];

export class Messages {
  constructor(acts, reread) {
    const table = (name) => (LISTS[name][1] === 'replies' ? repliesTable : messagesTable)(`messages-${name}`, acts, name, true);
    this.tables = Object.fromEntries(Object.keys(LISTS).map((name) => [name, table(name)]));
    this.limit = PAGE_ROWS;
    $('messages-more').addEventListener('click', () => {
      this.limit = further(this.limit);
      reread();
    });
  }

  /** Without a choice, the list that has something; it stays while one is here. */
  arrive() {
    this.picked = null;
  }

  async load(state, { counts }) {
    this.picked ??= LOOKED_AT.find((name) => counts[LISTS[name][2]]) ?? 'queued';
    this.state = LISTS[state] ? state : this.picked;
    this.counts = counts;
    const [path, field] = LISTS[this.state];
    return many(`/ops/api/${path}`, field, this.limit);
  }

  show(found) {
    const [, field] = LISTS[this.state];
    mark('message-states', `#messages=${this.state}`);
    for (const link of $('message-states').querySelectorAll('a')) link.dataset.count = this.counts[LISTS[link.hash.split('=')[1]][2]] || '';
    $('messages-about').textContent = MESSAGE_LISTS[this.state];
    for (const name of Object.keys(this.tables)) $(`messages-${name}`).hidden = name !== this.state;
    this.tables[this.state].show(found[field]);
    $('messages-more').hidden = !found.next || this.limit >= SHOWN;
  }

  again() {
    this.tables[this.state]?.show();
  }
}

/** A view whose code is fetched when somebody looks at it. */
class Later {
  constructor(fetched) {
    this.fetched = fetched;
  }

  async load(detail) {
    this.view ??= await this.fetched().catch(() => { throw new Disconnected('not fetched'); });
    return this.view.load(detail);
  }

  show(found) {
    this.view.show(found);
  }

  again() {
    this.view?.again?.();
  }
}

/** The views by their name in the address. */
export function makeViews(acts, reread) {
  return {
    now: new Now(acts), sessions: new Sessions(acts, reread), messages: new Messages(acts, reread),
    metrics: new Later(async () => new (await import('./metrics.js')).Metrics()),
    people: new Later(async () => new (await import('./people.js')).People(acts)),
    message: new Later(async () => new (await import('./timeline.js')).Timeline()),
  };
}

/** What the gateway is, in a line. */
export function aboutGateway({ gateway, counts }) {
  return [PAGE.about(gateway.version), ...(gateway.started_at ? [PAGE.up, since(gateway.started_at)] : []), counts.sessions === undefined ? '' : PAGE.conversations(counts.sessions)];
}
