// Keeps a copy of the page and of what it showed last, so that a reload works while the gateway is away. The network always
// goes first; the copy is only for when nobody answers.
const CACHE = 'everturn-page';

self.addEventListener('install', () => self.skipWaiting());
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
