// The line to the gateway: requests, and a stream of events.
import { LINE } from './texts.js';

export class Disconnected extends Error {}

/** A refusal with its reason. */
export class Refused extends Error {
  constructor(status, reason, retryAfter) {
    super(reason);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

const PATIENCE_MS = 20_000;
const PAUSES_MS = [300, 700, 1500, 3000, 5000]; // without a stream the last of them is how often we look
const HIDDEN_MS = 60_000;
export const SILENCE_MS = 45_000; // three heartbeats that did not come

/** One request; its JSON. Disconnected when nobody answers, Refused when the answer is no. */
export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(options.patience ?? PATIENCE_MS), ...options });
  } catch (error) {
    throw new Disconnected(error.message);
  }
  if (answer.ok) {
    const body = answer.status === 204 ? null : await answer.json().catch((error) => { throw new Disconnected(error.message); }); // cut off
    if (answer.headers.get('x-everturn-copy')) body.copy = true; // offline.js kept it; the gateway does not answer
    return body;
  }
  throw await refusal(answer, LINE.answered(answer.status));
}

async function refusal(answer, otherwise) {
  const body = await answer.json().catch(() => ({}));
  return new Refused(answer.status, body.error ?? otherwise, Number(answer.headers.get('retry-after')) || 0);
}

export const post = (path, body) => ask(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

/** Reads server-sent events from pieces of text, wherever they are cut. */
export class Lines {
  constructor() {
    this.rest = '';
    this.fields = {};
  }

  /** The events that are whole with this piece. */
  feed(piece) {
    const lines = (this.rest + piece).split('\n');
    this.rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line === '') {
        if (this.fields.event) events.push(this.fields);
        this.fields = {};
      } else if (!line.startsWith(':')) {
        const colon = line.indexOf(':');
        this.fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, '');
      }
    }
    return events.map(({ id, event, at, data }) => ({
      seq: id === undefined ? null : Number(id), kind: event, at: at === undefined ? Date.now() / 1000 : Number(at), data: JSON.parse(data),
    }));
  }
}

/** Follow a stream until it ends; `hear` gets each event, `opened` is called when the gateway listens. */
export async function follow(path, signal, opened, hear) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  try {
    const answer = await fetch(path, { cache: 'no-store', signal: AbortSignal.any([signal, silence.signal]) });
    if (!answer.ok) throw await refusal(answer, '');
    opened();
    const lines = new Lines();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      for (const event of lines.feed(value)) hear(event);
    }
  } finally {
    clearTimeout(timer);
  }
}

let endPause = () => {};

/** Wait before the next attempt, until `wake` says that there is a reason to make it. */
export function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    endPause = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
export const pauseAfter = (failures) => pause(PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)]);
export const wake = () => endPause();

/** A window that nobody looks at gives its connection back after a while; browsers allow few to one place. */
export function whileHidden(leave, back) {
  let timer = null;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(leave, HIDDEN_MS);
    else back();
  });
}
