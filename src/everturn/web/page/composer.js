// The message box: drafts that outlive a reload, commands that complete, files that are dropped in.
import { $, button, el } from './dom.js';
import { BOX } from './texts.js';

const DRAFT = 'everturn.draft.';
const TALL = 240;

export class Composer {
  /** `send(text)` takes what was written, `stop()` ends the running turn. */
  constructor({ send, stop, storage }) {
    this.storage = storage;
    this.chat = null;
    this.commands = [];
    this.offered = [];
    this.chosen = 0;
    this.files = [];
    this.fileBytes = 0;
    this.box = $('text');
    this.send = send;
    this.box.addEventListener('input', () => this.changed());
    this.box.addEventListener('keydown', (event) => this.key(event));
    this.box.addEventListener('paste', (event) => this.take(event, event.clipboardData));
    $('composer').addEventListener('submit', (event) => this.submit(event));
    $('stop').addEventListener('click', stop);
    $('attach').addEventListener('click', () => $('file').click());
    $('file').addEventListener('change', () => {
      this.add([...$('file').files]);
      $('file').value = '';
    });
    this.listenToDrops();
  }

  open(chat) {
    this.chat = chat;
    this.files = [];
    this.showFiles();
    this.put(this.stored() ?? '');
  }

  put(text) {
    this.box.value = text;
    this.changed();
  }

  stored() {
    try {
      return this.storage.getItem(DRAFT + this.chat);
    } catch {
      return null;
    }
  }

  changed() {
    const { box } = this;
    try {
      if (box.value) this.storage.setItem(DRAFT + this.chat, box.value);
      else this.storage.removeItem(DRAFT + this.chat);
    } catch {
      // no room in the browser: the text is still in the box
    }
    box.style.height = 'auto';
    box.style.height = `${Math.min(TALL, box.scrollHeight)}px`;
    this.offer();
    this.buttons();
  }

  working(now) {
    this.isWorking = now;
    this.buttons();
  }

  buttons() {
    const empty = !this.box.value.trim() && !this.files.length;
    $('stop').hidden = !this.isWorking;
    $('send').hidden = this.isWorking && empty;
    $('send').disabled = empty || this.files.some((each) => each.busy);
    this.box.placeholder = this.isWorking ? BOX.steer : BOX.write;
  }

  key(event) {
    if (event.isComposing) return;
    if (!$('commands').hidden && this.inList(event)) return;
    const byHand = matchMedia('(pointer: coarse)').matches;
    if (event.key === 'Enter' && !event.shiftKey && !byHand) {
      event.preventDefault();
      $('composer').requestSubmit();
    }
  }

  inList(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.choose((this.chosen + step + this.offered.length) % this.offered.length);
    else if (event.key === 'Tab') this.complete(this.offered[this.chosen]);
    else if (event.key === 'Enter' && this.offered[this.chosen].name !== this.typed()) this.complete(this.offered[this.chosen]);
    else if (event.key === 'Escape') this.hide();
    else return false;
    event.preventDefault();
    return true;
  }

  typed() {
    return /^\/([A-Za-z_-]*)$/.exec(this.box.value)?.[1].toLowerCase();
  }

  offer() {
    const typed = this.typed();
    this.offered = typed === undefined ? [] : this.commands.filter((each) => each.name.startsWith(typed));
    if (!this.offered.length) return this.hide();
    const list = $('commands');
    list.replaceChildren(...this.offered.map((each, n) => {
      const line = el('li', { role: 'option', id: `command-${n}` }, el('code', {}, `/${each.name}${each.arguments ? ` ${each.arguments}` : ''}`), el('span', {}, each.line));
      line.addEventListener('mousedown', (event) => {
        event.preventDefault();
        this.complete(each);
      });
      return line;
    }));
    list.hidden = false;
    this.box.setAttribute('aria-expanded', 'true');
    return this.choose(0);
  }

  choose(n) {
    this.chosen = n;
    [...$('commands').children].forEach((line, at) => {
      line.setAttribute('aria-selected', String(at === n));
      if (at === n) line.scrollIntoView({ block: 'nearest' });
    });
    this.box.setAttribute('aria-activedescendant', `command-${n}`);
  }

  hide() {
    $('commands').hidden = true;
    this.box.setAttribute('aria-expanded', 'false');
    this.box.removeAttribute('aria-activedescendant');
  }

  complete(command) {
    this.put(`/${command.name} `);
    this.hide();
    this.box.focus();
  }

  submit(event) {
    event.preventDefault();
    const said = this.box.value.trim();
    const files = this.files.filter((each) => each.url);
    if ((!said && !files.length) || this.files.some((each) => each.busy)) return;
    const text = [said, ...files.map(reference)].filter(Boolean).join('\n\n');
    this.files = this.files.filter((each) => !each.url);
    this.showFiles();
    this.put('');
    this.hide();
    this.send(text);
    this.box.focus();
  }

  listenToDrops() {
    let inside = 0;
    const has = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');
    addEventListener('dragenter', (event) => { if (has(event)) $('drop').hidden = !(inside += 1); });
    addEventListener('dragleave', (event) => { if (has(event)) $('drop').hidden = !(inside -= 1); });
    addEventListener('dragover', (event) => { if (has(event)) event.preventDefault(); });
    addEventListener('drop', (event) => {
      inside = 0;
      $('drop').hidden = true;
      this.take(event, event.dataTransfer);
    });
  }

  take(event, from) {
    const files = [...(from?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  add(files) {
    for (const file of files) {
      const each = { file, name: file.name || BOX.picture, busy: true };
      this.files.push(each);
      this.upload(each);
    }
    this.showFiles();
  }

  async upload(each) {
    Object.assign(each, { busy: true, why: '' });
    this.showFiles();
    try {
      if (this.fileBytes && each.file.size > this.fileBytes) throw new Error(BOX.tooLarge(Math.floor(this.fileBytes / 1048576)));
      const answer = await fetch(`/files?name=${encodeURIComponent(each.name)}`, { method: 'POST', body: each.file });
      const body = await answer.json();
      if (!answer.ok) throw new Error(body.error);
      Object.assign(each, { url: body.url, name: body.name, type: body.type });
    } catch (error) {
      each.why = error instanceof TypeError ? BOX.disconnected : error.message;
    }
    each.busy = false;
    this.showFiles();
  }

  showFiles() {
    $('chips').replaceChildren(...this.files.map((each) => {
      const again = button(BOX.again, () => this.upload(each), { class: 'quiet' });
      const drop = button('×', () => {
        this.files = this.files.filter((other) => other !== each);
        this.showFiles();
      }, { class: 'quiet', 'aria-label': BOX.remove(each.name) });
      return el('li', { class: 'chip' }, each.name, el('span', { class: 'faint' }, each.busy ? ' …' : each.why ? ` ${each.why}` : ''), each.why ? again : null, drop);
    }));
    this.buttons();
  }
}

function reference(each) {
  const name = each.name.replace(/[[\]\\]/g, '_');
  return `${each.type?.startsWith('image/') ? '!' : ''}[${name}](${each.url})`;
}
