// Puts the operations page together: which view is shown, when it is read again, and what it shows while it is disconnected.
import { $, el, markCurrent } from '../dom.js';
import { keepCopy, safeStorage } from '../keeping.js';
import { Disconnected, Refused, ask, follow, pauseAfter, wake, whileHidden } from '../line.js';
import { Acts } from './acts.js';
import { holdClock, setClock, theirNow, tick } from './table.js';
import { aboutGateway, makeViews } from './views.js';
import { PAGE, moment, statusLine } from './texts.js';

const QUIET_MS = 150;
const LASTING_MS = 5000; // a stream that ends sooner is no stream
const NOTICE_MS = 8000;

let overview = null;
let reading = null;
let wanted = false;
let timer = null;
let failures = 0;
let line = new AbortController();
let lastAsOf = null;
let copied = false;
let quieting = null;
let watched = null; // what was done a moment ago, and may come back

const acts = new Acts(safeStorage(), { changed: () => views[place().name].again?.(), said, done: () => soon(0), loggedOut });
const views = makeViews(acts, () => soon(0));

// -- which view --------------------------------------------------------------------------------------------------------

function place() {
  const [name, ...rest] = location.hash.slice(1).split('=');
  const detail = rest.join('=');
  return views[name] ? { name, detail: safeDecode(detail) } : { name: 'now', detail: '' };
}

function safeDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function turnTo() {
  const { name } = place();
  markCurrent(document.querySelectorAll('nav [data-view]'), (link) => link.dataset.view === name);
  for (const node of document.querySelectorAll('[data-of]')) node.hidden = node.dataset.of !== name;
  $('view').setAttribute('aria-busy', 'true');
  views[name].arrive?.();
}

// -- reading -----------------------------------------------------------------------------------------------------------

/** Read what is shown again in a moment; many reasons at once are one reading. */
function soon(wait = QUIET_MS) {
  clearTimeout(timer);
  timer = setTimeout(() => read().catch(trouble), wait);
}

/** Read the overview and the view that is open. While one reading runs, another is only remembered. */
async function read() {
  if (reading) {
    wanted = true;
    return reading;
  }
  reading = readAll();
  try {
    await reading;
  } finally {
    reading = null;
  }
  if (wanted) {
    wanted = false;
    soon(0);
  }
  return null;
}

async function readAll() {
  const { name, detail } = place();
  const done = watched;
  overview = await ask('/ops/api/overview');
  if (overview.copy) {
    setClock(overview.now);
    holdClock();
    views.now.glance(overview);
    throw new Disconnected('a copy');
  }
  const found = await views[name].load(detail, overview);
  setClock(overview.now);
  fresh();
  showHead();
  if (place().name !== name || place().detail !== detail) {
    wanted = true;
    return;
  }
  views[name].show(found, overview);
  if (done && done === watched && isShown(done.about)) said(done.back, false);
  $('view').setAttribute('aria-busy', 'false');
}

function showHead() {
  const { tone, text } = statusLine(overview);
  const news = tone === 'trouble' && $('status').textContent !== text;
  headline(tone, text);
  if (news) $('heard').textContent = text; // only what needs somebody is read out
  document.title = PAGE.title(tone === 'trouble');
  document.querySelector('nav [data-view=people]').dataset.count = overview.counts.access_requests || '';
  const shape = JSON.stringify([overview.gateway, overview.counts.sessions]);
  if ($('about').shape !== shape) $('about').replaceChildren(...aboutGateway(overview));
  $('about').shape = shape;
}

function headline(tone, text) {
  const status = $('status');
  if (status.textContent !== text) status.textContent = text;
  status.className = tone;
}

// -- the line ----------------------------------------------------------------------------------------------------------

/** Stay connected: hear what changed, or look every few seconds where there is no stream. */
async function stay(mine) {
  while (!mine.signal.aborted) {
    try {
      await read();
      await hear(mine.signal);
    } catch (error) {
      trouble(error);
    }
    if (!mine.signal.aborted) await pauseAfter(failures);
    failures += 1;
  }
}

/** Where the stream is refused or cut, the next reading says whether the gateway answers. */
async function hear(signal) {
  const began = performance.now();
  try {
    await follow('/ops/api/events', signal, () => {}, (event) => { if (event.kind === 'changed') soon(); });
  } catch (error) {
    if (error instanceof Refused && error.status === 401) throw error;
  }
  if (performance.now() - began > LASTING_MS) failures = 0;
}

function fresh() {
  const back = lastAsOf !== null;
  lastAsOf = null;
  document.body.classList.remove('disconnected');
  banner('');
  if (back) {
    said(PAGE.reconnected, true);
    wake();
  }
  acts.flush();
  if (!copied) keepCopy();
  copied = true;
}

function trouble(error) {
  if (error instanceof Refused && error.status === 401) return loggedOut();
  if (error instanceof Refused && error.status < 500) return banner(PAGE.refused(error.message));
  if (!(error instanceof Disconnected) && !(error instanceof Refused)) {
    banner(PAGE.fault);
    throw error; // ours, and must be seen
  }
  holdClock();
  hush();
  if (lastAsOf === null) lastAsOf = theirNow();
  document.body.classList.add('disconnected');
  const text = error instanceof Refused ? PAGE.unavailable(error.message) : PAGE.disconnected;
  headline('trouble', text);
  banner(PAGE.reconnecting(text, overview ? moment(lastAsOf, Date.now() / 1000, true) : ''));
  return undefined;
}

function banner(text) {
  $('banner').hidden = !text;
  if ($('banner').textContent !== text) $('banner').textContent = text;
}

function loggedOut() {
  line.abort();
  try {
    localStorage.setItem('everturn.to', '/ops');
  } catch {
    // then the login leads to the chat
  }
  location.replace('/login');
}

/** Show what was done, for a while. What a row says itself is only read out. */
function said(text, ok, about, back) {
  if (!ok && isShown(about)) {
    $('heard').textContent = text;
    return;
  }
  hush();
  $('said').className = ok ? 'ok' : 'wrong';
  $('said').replaceChildren(el('span', {}, text));
  quieting = setTimeout(hush, NOTICE_MS);
  watched = back ? { about, back } : null;
}

const isShown = (about) => [...document.querySelectorAll('[data-about]')].some((each) => each.dataset.about === about && each.offsetParent);

function hush() {
  clearTimeout(quieting);
  watched = null;
  $('said').replaceChildren();
}

// -- the page ----------------------------------------------------------------------------------------------------------

addEventListener('hashchange', () => {
  hush();
  acts.forget();
  turnTo();
  soon(0);
  const head = document.querySelector(`[data-of="${place().name}"] h2`);
  if (!document.querySelector('main').contains(document.activeElement) || document.activeElement.closest('[hidden]')) head?.focus({ preventScroll: true });
});
addEventListener('online', wake);
addEventListener('storage', () => views[place().name].again?.());
setInterval(tick, 1000);
whileHidden(() => line.abort(), () => {
  if (!line.signal.aborted) return soon(0);
  line = new AbortController();
  return stay(line);
});
turnTo();
stay(line);
