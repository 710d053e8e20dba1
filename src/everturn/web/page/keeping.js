// What the browser keeps for us: a copy of the page for reloads while the gateway does not answer, and small things over reloads.

/** Have a copy kept (offline.js). `began` is called when that begins, on a first visit: what is read from then on is kept. */
export function keepCopy(began = () => {}) {
  if (!('serviceWorker' in navigator)) return;
  if (!navigator.serviceWorker.controller) navigator.serviceWorker.addEventListener('controllerchange', began, { once: true });
  const address = '/offline.js';
  const policy = self.trustedTypes?.createPolicy('everturn', { createScriptURL: () => address });
  navigator.serviceWorker.register(policy ? policy.createScriptURL('') : address).catch(() => {});
}

/** The browser's storage, or one that says that it cannot keep anything. */
export function safeStorage() {
  try {
    localStorage.setItem('everturn.try', '1');
    localStorage.removeItem('everturn.try');
    return localStorage;
  } catch {
    return { getItem: () => null, setItem: () => { throw new Error('no storage'); }, removeItem: () => {} };
  }
}
