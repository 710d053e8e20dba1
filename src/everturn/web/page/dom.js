// Making and finding elements. Attributes are set by name, never parsed from text.
import { AGE, COPY } from './texts.js';

export const $ = (id) => document.getElementById(id);

/** An element with attributes and children; a string child is text. */
export function el(tag, attributes = {}, ...kids) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
  node.append(...kids.filter((kid) => kid !== null && kid !== undefined));
  return node;
}

/** A button that does something. */
export function button(text, act, attributes = {}) {
  const node = el('button', { type: 'button', ...attributes }, text);
  node.addEventListener('click', act);
  return node;
}

/** A button that copies a text and says so. */
export function copyButton(text, label) {
  const node = button(COPY.name, async () => {
    node.textContent = (await copied(text())) ? COPY.done : COPY.refused;
    setTimeout(() => { node.textContent = COPY.name; }, 1500);
  }, { class: 'quiet copy', 'aria-label': label });
  return node;
}

/** Mark which of some links or buttons is the one that is shown. */
export function markCurrent(nodes, isCurrent, as = 'page') {
  for (const node of nodes) {
    if (isCurrent(node)) node.setAttribute('aria-current', as);
    else node.removeAttribute('aria-current');
  }
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByHand(text);
  }
}

/** Without https there is no clipboard object: select and copy. */
function copiedByHand(text) {
  const area = el('textarea', { class: 'heard', 'aria-hidden': 'true' });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}

/** How long ago, in few characters. */
export function age(at, now) {
  const minutes = Math.max(0, (now - at) / 60);
  if (minutes < 1) return AGE.now;
  if (minutes < 60) return AGE.minutes(Math.floor(minutes));
  if (minutes < 60 * 24) return AGE.hours(Math.floor(minutes / 60));
  if (minutes < 60 * 24 * 60) return AGE.days(Math.floor(minutes / 1440));
  return new Date(at * 1000).toLocaleDateString();
}

/** A text as a title: its first line, without Markdown. */
export function asTitle(text) {
  const line = text.split('\n').find((each) => /[^\s`*#>|~-]/.test(each)) ?? '';
  return line.replace(/[`*#|~]+|^\s*[>-]+/g, ' ').replace(/\s+/g, ' ').trim().slice(0, 80);
}

/** Say something to a screen reader. */
export function announce(text) {
  $('announce').textContent = text.slice(0, 2000);
}
