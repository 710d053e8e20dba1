// Keeps a copy of the page and of what it showed last, so that a reload works while the gateway does not answer. The network always
// goes first; the copy is only for when nobody answers.
const CACHE = 'everturn-page';

// The pages' own files: a first visit has loaded them before anybody could keep them, and a reload needs all of them.
const ASSETS = [
  'base.css', 'composer.js', 'dom.js', 'draw.js', 'icon.svg', 'keeping.js', 'line.js', 'main.js', 'markdown.js', 'markdown_dom.js',
  'ops/acts.js', 'ops/chart.js', 'ops/choices.js', 'ops/lists.js', 'ops/main.js', 'ops/metrics.js', 'ops/ops.css', 'ops/people.js',
  'ops/table.js', 'ops/texts.js', 'ops/timeline.js', 'ops/views.js', 'outbox.js', 'page.css', 'side.js', 'talk.js', 'texts.js',
];
const FILES = ['/', '/ops', ...ASSETS.map((name) => `/assets/${name}`)];
const SHOWN = ['/web/me', '/web/conversations']; // what a page asks for before it shows anything

self.addEventListener('install', (event) => {
  self.skipWaiting();
  event.waitUntil(keepAll());
});

async function keepAll() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES);
  for (const path of SHOWN) {
    const found = await fetch(path);
    if (found.ok) await cache.put(path, found);
  }
}

self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

function isKept(url) {
  if (url.origin !== location.origin || url.search) return false;
  return url.pathname === '/' || url.pathname === '/ops' || url.pathname === '/ops/api/overview' || url.pathname.startsWith('/assets/') || url.pathname === '/web/me'
    || url.pathname === '/web/conversations' || /^\/web\/conversations\/[^/]+$/.test(url.pathname);
}

async function answer(request) {
  const cache = await caches.open(CACHE);
  try {
    const fresh = await fetch(request);
    if (fresh.ok) await cache.put(request, fresh.clone());
    else if (fresh.status === 401) await caches.delete(CACHE);
    return fresh;
  } catch (error) {
    const copy = await cache.match(request, { ignoreVary: true });
    if (!copy) throw error;
    const headers = new Headers(copy.headers);
    headers.set('x-everturn-copy', '1');
    return new Response(copy.body, { status: copy.status, headers });
  }
}

self.addEventListener('fetch', (event) => {
  if (event.request.method === 'GET' && isKept(new URL(event.request.url))) event.respondWith(answer(event.request));
});
