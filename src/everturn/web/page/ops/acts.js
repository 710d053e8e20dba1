// Actions that the operator requested and that are not yet known to be done. Each has an id and is kept in the browser, over reloads: when the
// answer is lost the page requests it again with the same id, and the gateway does it once.
import { post } from '../line.js';
import { Outbox, flusher, isFinal, newId } from '../outbox.js';
import { ACTION } from './texts.js';

export class Acts {
  /** `tell` has: changed() when something to be shown changed, said(text, ok, about, back) for the person, done(), loggedOut(). */
  constructor(storage, tell, send = post, later = undefined) {
    this.kept = new Outbox(storage, 'everturn.acts');
    this.tell = tell;
    this.send = send;
    this.flush = flusher(this.kept, (item) => this.one(item), () => this.tell.loggedOut(), later);
    this.refused = new Map();
  }

  /** Request it: `about` is the row it is about, `name` what the button says, `of` whom or what it is done to, `done` what is said then, `back`
   * what is said if the row is there again all the same. */
  begin(path, body, about, { name, of, done, back }) {
    if (this.pending(about)) return;
    this.refused.delete(about);
    const id = newId();
    this.kept.add({ id, chat: path, text: JSON.stringify({ ...body, id }), about, name, of, done, back });
    this.tell.changed();
    this.flush();
  }

  pending(about) {
    return this.kept.all().find((item) => item.about === about) ?? null;
  }

  /** Why the gateway would not do it. */
  whyNot(about) {
    return this.refused.get(about) ?? null;
  }

  /** Another view is shown: what was refused there is old news. */
  forget() {
    this.refused.clear();
  }

  async one(item) {
    try {
      const { said } = await this.send(item.chat, JSON.parse(item.text));
      this.kept.remove(item.id);
      this.tell.changed();
      this.tell.said(item.done ?? ACTION.result(item.of ?? item.name, said), true, item.about, item.back);
    } catch (error) {
      if (!isFinal(error)) throw error;
      this.kept.remove(item.id);
      this.refused.set(item.about, error.message);
      this.tell.changed();
      this.tell.said(ACTION.refusedBy(item.of ?? item.name, error.message), false, item.about);
    }
    this.tell.done();
  }
}
