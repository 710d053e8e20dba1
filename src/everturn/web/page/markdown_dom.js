// Draws the tree of markdown.js with DOM calls. Text becomes text nodes; no string is ever read as HTML.
import { parse } from './markdown.js';
import { el, copyButton } from './dom.js';
import { MARKDOWN } from './texts.js';

const INLINE = { strong: 'strong', em: 'em', strike: 'del' };

/** Draw a text into an element; blocks that did not change keep their nodes, so that streaming does not flicker. */
export function draw(into, text) {
  const blocks = parse(text);
  const old = into.drawn ?? [];
  let same = 0;
  while (same < blocks.length && same < old.length && blocks[same].source === old[same]) same += 1;
  while (into.childNodes.length > same) into.lastChild.remove();
  for (const block of blocks.slice(same)) into.append(blockNode(block));
  into.drawn = blocks.map((block) => block.source);
}

function blockNode(block) {
  switch (block.kind) {
    case 'heading': return el(`h${Math.min(6, block.level + 2)}`, {}, ...inlineNodes(block.kids));
    case 'rule': return el('hr');
    case 'code': return codeNode(block);
    case 'quote': return el('blockquote', {}, ...block.blocks.map(blockNode));
    case 'list': return listNode(block);
    case 'table': return tableNode(block);
    case 'plain': return el('pre', { class: 'plain' }, block.text);
    default: return el('p', {}, ...inlineNodes(block.kids));
  }
}

function codeNode(block) {
  const code = el('code', {}, block.text);
  const head = el('div', { class: 'code-head' }, el('span', {}, block.language || MARKDOWN.noLanguage), copyButton(() => block.text, MARKDOWN.copyCode));
  return el('div', { class: 'code' }, head, el('pre', { tabindex: '0' }, code));
}

function listNode(block) {
  const node = el(block.ordered ? 'ol' : 'ul');
  if (block.ordered && block.start !== 1) node.start = block.start;
  for (const item of block.items) {
    const kids = item.blocks.length === 1 && item.blocks[0].kind === 'paragraph' ? inlineNodes(item.blocks[0].kids) : item.blocks.map(blockNode);
    const mark = item.task === null ? [] : [el('span', { class: 'task' }, item.task ? '☑ ' : '☐ ')];
    node.append(el('li', item.task === null ? {} : { class: 'task-item' }, ...mark, ...kids));
  }
  return node;
}

function tableNode(block) {
  const cell = (tag) => (kids, n) => el(tag, { class: block.align[n] }, ...inlineNodes(kids));
  const head = el('thead', {}, el('tr', {}, ...block.head.map(cell('th'))));
  const body = el('tbody', {}, ...block.rows.map((row) => el('tr', {}, ...row.map(cell('td')))));
  return el('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': MARKDOWN.table }, el('table', {}, head, body));
}

function inlineNodes(kids) {
  return kids.map((kid) => {
    switch (kid.kind) {
      case 'text': return document.createTextNode(kid.text);
      case 'break': return el('br');
      case 'code': return el('code', {}, kid.text);
      case 'link': return linkNode(kid);
      case 'image': return imageNode(kid);
      default: return el(INLINE[kid.kind], {}, ...inlineNodes(kid.kids));
    }
  });
}

function linkNode(kid) {
  const file = kid.href.startsWith('/');
  const about = file ? { class: 'file' } : { target: '_blank', rel: 'noopener noreferrer nofollow', title: kid.href };
  return el('a', { href: kid.href, ...about }, ...inlineNodes(kid.kids));
}

function imageNode(kid) {
  const image = el('img', { src: kid.src, alt: kid.alt || MARKDOWN.picture, loading: 'lazy', class: 'picture' });
  image.addEventListener('error', () => image.replaceWith(el('a', { href: kid.src, class: 'file' }, kid.alt || MARKDOWN.file)));
  return el('a', { href: kid.src, target: '_blank', rel: 'noopener' }, image);
}
