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
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.error ?? LINE.answered(answer.status), Number(answer.headers.get('retry-after')) || 0);
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
    if (!answer.ok) {
      const body = await answer.json().catch(() => ({}));
      throw new Refused(answer.status, body.error ?? '', Number(answer.headers.get('retry-after')) || 0);
    }
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
