// What each view asks the gateway for, and how it shows the answer. A view is read again as a whole; tables keep what is the same.
import { $, el } from '../dom.js';
import { Away, ask } from '../line.js';
import { Life } from './life.js';
import { instancesTable, messagesTable, platformsTable, repliesTable, sessionsTable, turnsTable } from './lists.js';
import { since } from './table.js';
import { count, recovery } from './words.js';

const FEW = 10;
const PAGE = 50;
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

const further = (limit) => Math.min(SHOWN, limit + (limit < MOST ? PAGE : MOST));

/** A tile: a figure, its name, and where more of it is. */
const TILES = [
  ['open', 'under way', '#now'],
  ['waiting_for_approval', 'wait for a yes', '#now'],
  ['inbox_waiting', 'messages in line', '#messages=waiting', 'inbox_oldest_at'],
  ['outbox_owed', 'replies on the way', '#messages=owed', 'outbox_oldest_at'],
  ['dead_replies', 'not delivered', '#messages=dead', null, true],
  ['doubtful', 'uncertain', '#messages=doubtful', null, true],
  ['dead_messages', 'given up', '#messages=given_up', null, true],
  ['suspended', 'set aside', '#sessions=suspended', null, true],
];

/** As many as there are rows below it. */
const openTurns = (c) => c.running + c.waiting_for_approval + c.interrupted;

export class Now {
  constructor(acts) {
    this.lists = {
      dead: repliesTable('needs-dead', acts, 'dead', 'Replies not delivered'),
      doubtful: repliesTable('needs-doubtful', acts, 'doubtful', 'Replies that may or may not have arrived'),
      givenUp: messagesTable('needs-given-up', acts, 'dead', 'Messages that were given up'),
      suspended: sessionsTable('needs-suspended', acts, 'Conversations that were set aside', false),
    };
    this.turns = turnsTable('turns', acts);
    this.platforms = platformsTable('platforms');
    this.instances = instancesTable('instances');
    this.tiles = new Map();
  }

  /** Only what the overview says is there. */
  async load(_, { counts: c }) {
    const some = (n, path, field) => (n ? ask(`/ops/api/${path}&limit=${FEW}`).then((found) => found[field]) : []);
    const [turns, dead, doubtful, givenUp, suspended] = await Promise.all([
      openTurns(c) ? ask(`/ops/api/turns?state=open&limit=${PAGE}`).then((found) => found.turns) : [],
      some(c.dead_replies, 'outbox?state=dead', 'replies'),
      some(c.doubtful, 'outbox?state=doubtful', 'replies'),
      some(c.dead_messages, 'inbox?state=dead', 'messages'),
      some(c.suspended, 'sessions?state=suspended', 'sessions'),
    ]);
    return { turns, dead, doubtful, givenUp, suspended };
  }

  show(found, overview) {
    this.glance(overview);
    const { lists } = this;
    $('needs').hidden = false; // a row's focus may only move to what can be seen
    for (const name of Object.keys(lists)) lists[name].show(found[name]);
    const none = Object.keys(lists).every((name) => !found[name].length);
    if (none && $('needs').contains(document.activeElement)) $('how').focus({ preventScroll: true });
    $('needs').hidden = none;
    this.turns.show(found.turns);
  }

  /** What the overview alone tells. */
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
    for (const [name, words, href, oldest, bad] of TILES) {
      const value = name === 'open' ? openTurns(counts) : counts[name] ?? 0;
      let tile = this.tiles.get(name);
      if (!tile) {
        tile = { link: el('a', { href }), figure: el('strong'), age: el('span', { class: 'faint' }) };
        tile.link.append(tile.figure, el('span', {}, words), tile.age);
        $('tiles').append(el('li', {}, tile.link));
        this.tiles.set(name, tile);
      }
      if (tile.figure.textContent !== String(value)) tile.figure.textContent = String(value);
      tile.link.classList.toggle('bad', Boolean(bad && value));
      tile.link.classList.toggle('none', !value);
      const at = value && oldest ? counts[oldest] : null;
      if (tile.at !== at) tile.age.replaceChildren(...(at ? ['oldest ', since(at)] : []));
      tile.at = at;
    }
  }

  showRecoveries({ recoveries = [], now }) {
    const lines = recoveries.map((each) => recovery(each, now));
    const shape = JSON.stringify(lines);
    $('recoveries-none').hidden = lines.length > 0;
    if (shape === this.shape) return;
    this.shape = shape;
    $('recoveries').replaceChildren(...lines.map((line, n) => el('li', { class: recoveries[n].last_life === 'unclean' ? 'unclean' : null }, line)));
  }
}

/** Mark which of some links is the one that is shown. */
function mark(place, hash) {
  for (const link of $(place).querySelectorAll('a')) {
    if (link.hash === hash) link.setAttribute('aria-current', 'true');
    else link.removeAttribute('aria-current');
  }
}

export class Sessions {
  constructor(acts, reread) {
    this.table = sessionsTable('sessions', acts);
    this.limit = PAGE;
    let timer = null;
    $('session-words').addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(reread, 200);
    });
    $('session-states').addEventListener('click', (event) => {
      if (!event.target.closest('a')?.hash.endsWith('=all') || !$('session-words').value) return;
      $('session-words').value = '';
      reread();
    });
    $('sessions-more').addEventListener('click', () => {
      this.limit = further(this.limit);
      reread();
    });
  }

  async load(state) {
    this.state = state || 'all';
    const words = $('session-words').value.trim();
    return many(`/ops/api/sessions?state=${this.state}${words ? `&q=${encodeURIComponent(words)}` : ''}`, 'sessions', this.limit);
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

const MESSAGES = {
  waiting: ['inbox?state=waiting', 'messages', 'Accepted, safe, and not yet answered.'],
  owed: ['outbox?state=owed', 'replies', 'Written, and not yet confirmed by the platform. They are tried again by themselves.'],
  dead: ['outbox?state=dead', 'replies', 'Given up after the platform refused them or did not answer in time. Nothing happens to them until you decide.'],
  doubtful: ['outbox?state=doubtful', 'replies', 'The gateway or the platform went away while they were sent. Look into the chat: it arrived, or it is sent again with a mark.'],
  given_up: ['inbox?state=dead', 'messages', 'Accepted, and not answered. Trying again begins a new turn.'],
};

const COUNTED = { waiting: 'inbox_waiting', owed: 'outbox_owed', dead: 'dead_replies', doubtful: 'doubtful', given_up: 'dead_messages' };
const LOOKED_AT = ['dead', 'doubtful', 'given_up', 'owed'];

export class Messages {
  constructor(acts, reread) {
    this.tables = {
      waiting: messagesTable('messages-waiting', acts, 'waiting', 'Messages in line', true),
      owed: repliesTable('messages-owed', acts, 'owed', 'Replies on the way', true),
      dead: repliesTable('messages-dead', acts, 'dead', 'Replies not delivered', true),
      doubtful: repliesTable('messages-doubtful', acts, 'doubtful', 'Replies that may or may not have arrived', true),
      given_up: messagesTable('messages-given_up', acts, 'dead', 'Messages that were given up', true),
    };
    this.limit = PAGE;
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
    this.picked ??= LOOKED_AT.find((name) => counts[COUNTED[name]]) ?? 'waiting';
    this.state = MESSAGES[state] ? state : this.picked;
    this.counts = counts;
    const [path, field] = MESSAGES[this.state];
    return many(`/ops/api/${path}`, field, this.limit);
  }

  show(found) {
    const [, field, words] = MESSAGES[this.state];
    mark('message-states', `#messages=${this.state}`);
    for (const link of $('message-states').querySelectorAll('a')) link.dataset.count = this.counts[COUNTED[link.hash.split('=')[1]]] || '';
    $('messages-about').textContent = words;
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
    this.view ??= await this.fetched().catch(() => { throw new Away('not fetched'); });
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
  return { now: new Now(acts), sessions: new Sessions(acts, reread), messages: new Messages(acts, reread), figures: new Later(async () => new (await import('./figures.js')).Figures()), people: new Later(async () => new (await import('./people.js')).People(acts)), life: new Life() };
}

/** What the gateway is, in a line. */
export function aboutGateway({ gateway, counts }) {
  return [`Everturn ${gateway.version ?? ''}`, ...(gateway.started_at ? [' · up ', since(gateway.started_at)] : []), counts.sessions === undefined ? '' : ` · ${counts.sessions >= 10_000 ? '10,000 conversations or more' : count(counts.sessions, 'conversation')}`];
}
