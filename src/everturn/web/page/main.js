// Puts the page together: which conversation is open, what it shows, and what waits to be sent.
import { Composer } from './composer.js';
import { $, announce, asTitle, button } from './dom.js';
import { Drawing } from './draw.js';
import { keepCopy, safeStorage } from './keeping.js';
import { Disconnected, Refused, ask, follow, pause, pauseAfter, post, wake, whileHidden } from './line.js';
import { Outbox, flusher, isFinal, newId } from './outbox.js';
import { Side } from './side.js';
import { addEarlier, addRows, emptyTalk, fromSnapshot, happen, lastSeq, timeline } from './talk.js';
import { LINE, PAGE, STATES } from './texts.js';

const STUCK_PX = 80;

const storage = safeStorage();
const outbox = new Outbox(storage);
const flush = flusher(outbox, deliver, loggedOut);
let talk = emptyTalk(newId());
let line = new AbortController();
let here = false; // the gateway hears us
let disconnected = false;
let failures = 0;
let drawing = false;

const side = new Side((chat) => openChat(chat));
const composer = new Composer({ send: say, stop: () => command('/stop'), storage });
const picture = new Drawing($('items'), {
  approve: (id, how) => command(`/approve ${id} ${how}`.trim()),
  deny: (id) => command(`/deny ${id}`),
  edit: beginEdit,
  drop: (item) => { outbox.remove(item.id); redraw(); },
});
let editing = null;

// -- what is shown -----------------------------------------------------------------------------------------------------

function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    show();
  });
}

function show() {
  const scroll = $('scroll');
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < STUCK_PX;
  const items = timeline(talk, outbox.of(talk.chat));
  picture.show(items);
  $('welcome').hidden = items.length > 0;
  $('earlier').hidden = !talk.earlier;
  const title = asTitle(talk.title || items.find((item) => item.kind === 'user')?.text || '') || PAGE.untitled;
  $('title').textContent = title;
  $('rename').hidden = !talk.session;
  document.title = PAGE.title(title, document.hidden && document.title.startsWith('●'));
  $('suspended').hidden = talk.state !== 'suspended';
  showState();
  if (atEnd) scroll.scrollTop = scroll.scrollHeight;
  $('below').hidden = atEnd || scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < STUCK_PX;
}

function showState() {
  const state = talk.open?.state;
  $('state').textContent = disconnected ? PAGE.disconnected : STATES[state] ?? '';
  $('state').className = `state ${disconnected ? 'suspended' : state === 'running' ? 'working' : state ? 'awaiting_approval' : ''}`;
  composer.working(state === 'running' || state === 'interrupted');
}

function banner(text, ...more) {
  $('banner').hidden = !text;
  if ($('banner').textContent !== text || more.length) $('banner').replaceChildren(text ?? '', ...more);
}

// -- the line ----------------------------------------------------------------------------------------------------------

async function openChat(chat, focus = true) {
  line.abort();
  line = new AbortController();
  const mine = line;
  talk = emptyTalk(chat);
  location.hash = `c=${encodeURIComponent(chat)}`;
  picture.clear();
  endEdit();
  composer.open(chat);
  side.mark(chat);
  closeSide();
  show();
  $('scroll').scrollTop = $('scroll').scrollHeight;
  if (focus && !matchMedia('(pointer: coarse)').matches) $('text').focus();
  await stay(chat, mine);
}

/** Be connected to a conversation for as long as it is open here. */
async function stay(chat, mine) {
  const url = `/web/conversations/${encodeURIComponent(chat)}`;
  while (!mine.signal.aborted) {
    try {
      await load(url, mine);
      await follow(`${url}/events?after=${talk.event}&added=1`, mine.signal, connected, (event) => { if (mine === line) hear(event); });
      lost(LINE.disconnected);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof Refused && error.status === 401) return loggedOut();
      lost(error instanceof Refused && error.message ? error.message : LINE.disconnected);
    }
    if (!mine.signal.aborted) await pauseAfter(failures);
    failures += 1;
  }
}

async function load(url, mine) {
  const snap = await ask(url);
  if (mine.signal.aborted) return;
  if (snap.copy && talk.event) throw new Disconnected('a copy');
  take(snap);
  if (snap.copy) throw new Disconnected('a copy');
}

function take(snap) {
  talk = fromSnapshot(talk.chat, snap, talk);
  show();
}

function connected() {
  here = true;
  disconnected = false;
  failures = 0;
  banner('');
  showState();
  side.soon();
  flush();
}

function lost(text) {
  here = false;
  disconnected = true;
  banner(text);
  showState();
}

/** Whether an error is the line's, which comes back by itself; any other one is ours, and must be seen. */
const isLine = (error) => error instanceof Disconnected || error instanceof Refused;

function loggedOut() {
  here = false;
  banner(LINE.loggedOut);
}

function hear(event) {
  if (event.kind === 'elsewhere') return side.soon();
  if (event.kind === 'gap') return reload();
  const wanted = happen(talk, event);
  if (event.kind === 'reply') answered(event.data);
  if (event.kind === 'approval' && event.data.state !== 'closed') announce(PAGE.approvalRequested);
  if (wanted === 'rows') talk.session ? readRows() : reload();
  if (wanted === 'all') reload();
  redraw();
}

function answered(data) {
  announce(data.text);
  if (document.hidden && !document.title.startsWith('●')) document.title = `● ${document.title}`;
}

let reading = false;
let again = false;
let more = false;

/** Read what was added to the transcript; several reasons at once are one reading. */
async function readRows() {
  if (reading) {
    more = true;
    return;
  }
  reading = true;
  const of = talk;
  try {
    do {
      more = false;
      const found = await ask(`/web/conversations/${encodeURIComponent(of.chat)}/rows?after=${lastSeq(of)}`);
      if (of !== talk) return;
      if (found.session_id !== of.session) {
        reload(); // the conversation goes on in another session: nothing of the old rows may mix with the new
        return;
      }
      addRows(of, found.rows);
      if (of === talk) redraw();
    } while (more);
  } catch (error) {
    if (!isLine(error)) throw error; // the line comes back with everything
  } finally {
    reading = false;
  }
}

let reloading = false;

/** Read everything again while the stream goes on: an answer that is older than what was heard meanwhile does not count. */
async function reload() {
  if (reloading) {
    again = true;
    return;
  }
  reloading = true;
  const mine = line;
  try {
    do {
      again = false;
      const snap = await ask(`/web/conversations/${encodeURIComponent(talk.chat)}`);
      if (mine !== line || snap.copy) return;
      if (snap.event >= talk.event) take(snap);
      else again = true;
    } while (again);
  } catch (error) {
    if (!isLine(error)) throw error; // the line comes back with everything
  } finally {
    reloading = false;
  }
}

async function readEarlier() {
  const scroll = $('scroll');
  const { chat, session, earlier } = talk;
  if (!earlier) return;
  const found = await ask(`/web/conversations/${encodeURIComponent(chat)}/earlier?session=${encodeURIComponent(earlier.session_id)}&before=${earlier.before}`);
  const now = talk.earlier;
  if (talk.chat !== chat || talk.session !== session || now?.session_id !== earlier.session_id || now?.before !== earlier.before) return; // read twice
  const height = scroll.scrollHeight;
  addEarlier(talk, found);
  show();
  scroll.scrollTop += scroll.scrollHeight - height;
}

// -- what is said ------------------------------------------------------------------------------------------------------

function say(text) {
  if (editing) {
    if (talk.open) enqueue('/stop');
    if (!editing.refused) enqueue('/undo');
    else outbox.remove(editing.id);
    endEdit();
  }
  enqueue(text);
  show();
  $('scroll').scrollTop = $('scroll').scrollHeight;
  flush();
}

function command(text) {
  enqueue(text);
  redraw();
  flush();
}

function enqueue(text) {
  outbox.add({ chat: talk.chat, id: newId(), text, at: Date.now() / 1000 });
  if (!outbox.kept) banner(LINE.noRoom);
}

async function deliver(item) {
  try {
    await post(`/web/conversations/${encodeURIComponent(item.chat)}/messages`, { id: item.id, text: item.text });
  } catch (error) {
    if (!isFinal(error)) throw error;
    outbox.refuse(item.id, error.message);
    redraw();
    return;
  }
  if (item.chat === talk.chat) taken(item);
  outbox.remove(item.id);
  redraw();
}

/** The gateway saved it; the event that says so may still come. */
function taken(item) {
  const known = talk.said.has(item.id) || talk.told.has(`c${item.id}`) || [...talk.rows.values()].some((row) => row.id === item.id);
  if (!known) happen(talk, { seq: null, kind: 'message', at: item.at, data: item });
}

function beginEdit(item) {
  editing = { id: item.id, refused: item.status === 'refused' };
  $('editing').hidden = false;
  composer.put(item.text);
  $('text').focus();
}

function endEdit() {
  editing = null;
  $('editing').hidden = true;
}

// -- the page ----------------------------------------------------------------------------------------------------------

function openSide() {
  document.body.classList.add('side-open');
  $('shade').hidden = false;
  $('menu').setAttribute('aria-expanded', 'true');
  $('new').focus();
}

function closeSide() {
  document.body.classList.remove('side-open');
  $('shade').hidden = true;
  $('menu').setAttribute('aria-expanded', 'false');
}

function rename() {
  $('rename-dialog').returnValue = '';
  $('rename-text').value = talk.title;
  $('rename-dialog').showModal();
  $('rename-text').select();
}

async function logOut() {
  try {
    await ask('/logout', { method: 'POST' });
  } finally {
    if ('caches' in self) await caches.delete('everturn-page').catch(() => {});
    location.assign('/login');
  }
}

function listen() {
  $('new').addEventListener('click', () => openChat(newId()));
  $('menu').addEventListener('click', openSide);
  $('close-side').addEventListener('click', closeSide);
  $('shade').addEventListener('click', closeSide);
  $('rename').addEventListener('click', rename);
  $('rename-cancel').addEventListener('click', () => $('rename-dialog').close('cancel'));
  $('rename-dialog').addEventListener('close', () => {
    const title = $('rename-text').value.trim();
    if ($('rename-dialog').returnValue === 'ok' && title && title !== talk.title) command(`/title ${title}`);
  });
  $('logout').addEventListener('click', logOut);
  $('earlier').addEventListener('click', () => readEarlier().catch(() => banner(LINE.disconnected)));
  $('resume').addEventListener('click', () => command('/resume'));
  $('cancel-edit').addEventListener('click', () => {
    endEdit();
    composer.put('');
  });
  $('below').addEventListener('click', () => { $('scroll').scrollTop = $('scroll').scrollHeight; });
  $('scroll').addEventListener('scroll', () => {
    const { scrollHeight, scrollTop, clientHeight } = $('scroll');
    if (scrollHeight - scrollTop - clientHeight < STUCK_PX) $('below').hidden = true;
  });
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && document.body.classList.contains('side-open')) {
      closeSide();
      $('menu').focus();
    }
  });
  addEventListener('online', wake);
  addEventListener('offline', () => { if (!here) banner(LINE.disconnected); });
  addEventListener('storage', redraw);
  addEventListener('hashchange', () => {
    const chat = chatOfAddress();
    if (chat && chat !== talk.chat) openChat(chat);
  });
  whileHidden(() => line.abort(), () => {
    document.title = document.title.replace(/^● /, '');
    wake();
    side.needs();
    if (line.signal.aborted) {
      line = new AbortController();
      stay(talk.chat, line);
    }
  });
}

function chatOfAddress() {
  const found = /^#c=([^&]+)$/.exec(location.hash);
  return found ? decodeURIComponent(found[1]) : null;
}

function ideas() {
  $('ideas').replaceChildren(...PAGE.ideas.map((text) => button(text, () => say(text))));
}

async function greet() {
  for (;;) {
    try {
      const me = await ask('/web/me');
      composer.commands = me.commands;
      composer.fileBytes = me.file_bytes;
      $('version').textContent = me.version;
      return '';
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return '/login';
      if (error instanceof Refused && error.status === 403) return '/ops'; // a key let this browser in: it may not speak here
      lost(LINE.disconnected);
      await pause(1000);
    }
  }
}

async function start() {
  listen();
  ideas();
  const elsewhere = await greet();
  if (elsewhere) {
    location.replace(elsewhere);
    return;
  }
  keepCopy(reload);
  await side.read();
  const chat = chatOfAddress() ?? side.known[0]?.chat ?? newId();
  openChat(chat);
  side.needs();
}

start();
