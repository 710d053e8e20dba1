// A small Markdown: text in, a tree of plain values out. No HTML is read or made here, so none can be smuggled in.
// Strangers write what is read here: each step takes time that grows with the text, not with its square. So no pattern has two
// neighbours that can share the same characters, none is tried at each place up to the end, and nothing is cut out twice.

const DEEPEST = 12;
const LONGEST = 300_000;
const LONGEST_LABEL = 2000;
const LONGEST_TARGET = 3000;

/** A link target that may be followed, or null. Only web and mail addresses, and files of this gateway. */
export function safeLink(raw) {
  const url = String(raw).replace(/[\u0000-\u0020\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g, '');
  if (/^(https?:\/\/|mailto:)[^/]/i.test(url)) return url;
  return isFile(url) ? url : null;
}

/** Whether an address is a file that this gateway keeps. */
export function isFile(url) {
  return /^\/files\/[A-Za-z0-9_-]{22}\/[^/?#\\]+$/.test(url);
}

/** The blocks of a text; each has the `source` it was made from, so that a page can keep what did not change. */
export function parse(text) {
  if (text.length > LONGEST) return [{ kind: 'plain', text, source: text }];
  return blocksOf(text.replace(/\r\n?/g, '\n').split('\n'), 0);
}

function blocksOf(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, next] = blockAt(lines, at, depth);
    block.source = lines.slice(at, next).join('\n');
    blocks.push(block);
    at = next;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(line);
  if (fence && !line.includes('`', fence[0].length)) return fenced(lines, at, fence[1], line.slice(fence[0].length));
  const heading = /^ {0,3}(#{1,6})\s/.exec(line);
  if (heading) return [{ kind: 'heading', level: heading[1].length, kids: inline(headingText(line.slice(heading[0].length))) }, at + 1];
  if (isRule(line)) return [{ kind: 'rule' }, at + 1];
  if (depth < DEEPEST && /^ {0,3}>/.test(line)) return quoted(lines, at, depth);
  if (depth < DEEPEST && marker(line)) return listed(lines, at, depth);
  if (isTable(lines, at)) return tabled(lines, at);
  return paragraph(lines, at, depth);
}

function isRule(line) {
  return /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/.test(line);
}

/** What a heading says, without the signs that may close it. */
function headingText(rest) {
  const text = rest.trim();
  return text.slice(0, lengthWithout(text, '#')).trimEnd();
}

/** How long a text is without the characters at its end that are among these. */
function lengthWithout(text, signs) {
  let end = text.length;
  while (end > 0 && signs.includes(text[end - 1])) end -= 1;
  return end;
}

function closesFence(line, mark) {
  const text = line.trimEnd();
  const indent = text.length - text.trimStart().length;
  return indent <= 3 && text.startsWith(mark, indent) && lengthWithout(text, mark[0]) === indent && !/[^ ]/.test(text.slice(0, indent));
}

function fenced(lines, at, mark, about) {
  let end = at + 1;
  while (end < lines.length && !closesFence(lines[end], mark)) end += 1;
  const language = (about.trim().split(/\s+/)[0] || '').slice(0, 30);
  const block = { kind: 'code', language, text: lines.slice(at + 1, end).join('\n') };
  return [block, Math.min(end + 1, lines.length)];
}

function quoted(lines, at, depth) {
  const inner = [];
  while (at < lines.length && /^ {0,3}>/.test(lines[at])) {
    inner.push(lines[at].replace(/^ {0,3}> ?/, ''));
    at += 1;
  }
  return [{ kind: 'quote', blocks: blocksOf(inner, depth + 1) }, at];
}

function marker(line) {
  const found = /^( {0,3})([-*+]|(\d{1,9})[.)])( {1,4}|\t|$)/.exec(line);
  if (!found || isRule(line)) return null;
  return { width: found[0].length || 2, ordered: found[3] !== undefined, start: Number(found[3] ?? 1), sign: found[2].at(-1) };
}

function listed(lines, at, depth) {
  const first = marker(lines[at]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const mark = marker(lines[end]);
    if (!mark || mark.ordered !== first.ordered || mark.sign !== first.sign) break;
    const [inner, next] = itemLines(lines, end, mark.width);
    items.push(itemOf(inner, depth));
    end = next;
  }
  return [{ kind: 'list', ordered: first.ordered, start: first.start, items }, end];
}

function itemLines(lines, at, width) {
  const inner = [lines[at].slice(width)];
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    const indented = line.length - line.trimStart().length >= Math.min(width, 2) && line.trim();
    if (indented) inner.push(line.slice(Math.min(width, line.length - line.trimStart().length)));
    else if (!line.trim() && goesOn(lines, end + 1, width)) inner.push('');
    else if (line.trim() && lines[end - 1].trim() && !marker(line) && !startsBlock(line)) inner.push(line.trimStart());
    else break;
    end += 1;
  }
  while (end < lines.length && !lines[end].trim() && marker(lines[end + 1] ?? '')) end += 1;
  return [inner, end];
}

function goesOn(lines, at, width) {
  const line = lines[at] ?? '';
  return Boolean(line.trim()) && line.length - line.trimStart().length >= Math.min(width, 2);
}

function itemOf(inner, depth) {
  const task = /^\[([ xX])\]\s+/.exec(inner[0]);
  if (task) inner[0] = inner[0].slice(task[0].length);
  return { task: task ? task[1] !== ' ' : null, blocks: blocksOf(inner, depth + 1) };
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, '|'));
}

function isTable(lines, at) {
  const under = lines[at + 1] ?? '';
  if (!lines[at].includes('|') || !/^[ |:-]+$/.test(under) || !under.includes('-')) return false;
  return cells(under).every((cell) => /^:?-+:?$/.test(cell)) && cells(lines[at]).length === cells(under).length;
}

function tabled(lines, at) {
  const align = cells(lines[at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left'));
  const rows = [];
  let end = at + 2;
  while (end < lines.length && lines[end].trim() && lines[end].includes('|')) {
    rows.push(cells(lines[end]).slice(0, align.length).map((cell) => inline(cell))); // cells that are not there are not made up
    end += 1;
  }
  return [{ kind: 'table', align, head: cells(lines[at]).map((cell) => inline(cell)), rows }, end];
}

function startsBlock(line) {
  return /^ {0,3}(`{3,}|~{3,}|#{1,6}\s|>)/.test(line) || isRule(line);
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines[end]) && !(depth < DEEPEST && marker(lines[end])) && !isTable(lines, end)) end += 1;
  return [{ kind: 'paragraph', kids: inline(lines.slice(at, end).join('\n').trim()) }, end];
}

const PAIRS = [['**', 'strong'], ['__', 'strong'], ['~~', 'strike'], ['*', 'em'], ['_', 'em']];
const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;

/** The parts of a line. */
export function inline(text, depth = 0) {
  const kids = [];
  const known = { missing: new Set(), brackets: null }; // delimiters without an end further on, and where brackets end
  let plain = '';
  let at = 0;
  const flush = () => {
    if (plain) kids.push({ kind: 'text', text: plain });
    plain = '';
  };
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const special = SPECIAL.exec(text);
    const until = special ? special.index : text.length;
    plain += text.slice(at, until);
    at = until;
    if (!special) break;
    const found = depth < DEEPEST ? partAt(text, at, known, depth, plain ? text[at - 1] : '') : null;
    if (found) {
      flush();
      kids.push(found[0]);
      at = found[1];
    } else if (text[at] === '\\' && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? '')) {
      plain += text[at + 1];
      at += 2;
    } else if (text[at] === '\n') {
      flush();
      kids.push({ kind: 'break' });
      at += 1;
    } else {
      plain += text[at];
      at += 1;
    }
  }
  flush();
  return kids;
}

/** What begins here, and where it ends; `before` is the character in front of it, if that is plain text. */
function partAt(text, at, known, depth, before) {
  switch (text[at]) {
    case '`': return codeAt(text, at, known.missing);
    case '[': return linkAt(text, at, depth, known);
    case '!': return text[at + 1] === '[' ? imageAt(text, at, known) : null;
    case '<': return angledAt(text, at);
    case 'h': return /[\w/]/.test(before) ? null : bareAt(text, at);
    case '\\': case '\n': return null;
    default: return emphasisAt(text, at, known.missing, depth, before);
  }
}

function codeAt(text, at, missing) {
  const mark = /^`+/.exec(text.slice(at, at + 20))[0];
  if (missing.has(mark)) return null;
  let end = text.indexOf(mark, at + mark.length);
  while (end >= 0 && (text[end + mark.length] === '`' || text[end - 1] === '`')) end = text.indexOf(mark, end + mark.length);
  if (end < 0) {
    missing.add(mark);
    return null;
  }
  const inner = text.slice(at + mark.length, end).replace(/\n/g, ' ');
  return [{ kind: 'code', text: /^ .* $/.test(inner) && inner.trim() ? inner.slice(1, -1) : inner }, end + mark.length];
}

function emphasisAt(text, at, missing, depth, before) {
  for (const [mark, kind] of PAIRS) {
    if (!text.startsWith(mark, at) || missing.has(mark)) continue;
    const next = text[at + mark.length] ?? ' ';
    if (/\s/.test(next) || next === mark[0] || (mark[0] === '_' && /\w/.test(before))) continue;
    const end = closing(text, at + mark.length, mark);
    if (end < 0) {
      missing.add(mark);
      continue;
    }
    return [{ kind, kids: inline(text.slice(at + mark.length, end), depth + 1) }, end + mark.length];
  }
  return null;
}

function closing(text, from, mark) {
  let end = text.indexOf(mark, from);
  while (end >= 0) {
    const fits = end > from && !/\s/.test(text[end - 1]) && text[end - 1] !== '\\';
    const single = mark.length > 1 || (text[end + 1] !== mark && text[end - 1] !== mark);
    if (fits && single && !(mark[0] === '_' && /\w/.test(text[end + mark.length] ?? ''))) return end;
    end = text.indexOf(mark, end + (single ? 1 : 2));
  }
  return -1;
}

/** Where each bracket of a text ends. */
function bracketsOf(text) {
  const ends = new Map();
  const open = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1;
    else if (text[at] === '[') open.push(at);
    else if (text[at] === ']' && open.length) ends.set(open.pop(), at);
  }
  return ends;
}

function bracketed(text, at, known) {
  known.brackets ??= bracketsOf(text);
  const end = known.brackets.get(at);
  if (end === undefined || end - at >= LONGEST_LABEL) return null;
  const rest = text.slice(end + 1, end + LONGEST_TARGET);
  const target = /^\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?/.exec(rest);
  const close = target && /^(?:\s+["'(][^"')]*["')])?\s*\)/.exec(rest.slice(target[0].length));
  return close ? { label: text.slice(at + 1, end), url: target[1], end: end + 1 + target[0].length + close[0].length } : null;
}

function linkAt(text, at, depth, known) {
  const found = bracketed(text, at, known);
  const href = found && safeLink(found.url);
  return href ? [{ kind: 'link', href, kids: inline(found.label, Math.max(depth + 1, DEEPEST - 2)) }, found.end] : null;
}

function imageAt(text, at, known) {
  const found = bracketed(text, at + 1, known);
  const href = found && safeLink(found.url);
  if (!href) return null;
  // A picture from elsewhere would tell its server that it was looked at: it is a link.
  if (!isFile(href)) return [{ kind: 'link', href, kids: [{ kind: 'text', text: found.label || href }] }, found.end];
  return [{ kind: 'image', src: href, alt: found.label }, found.end];
}

function angledAt(text, at) {
  const found = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i.exec(text.slice(at, at + 2100));
  const href = found && safeLink(found[1]);
  return href ? [{ kind: 'link', href, kids: [{ kind: 'text', text: found[1] }] }, at + found[0].length] : null;
}

function bareAt(text, at) {
  const found = /^https?:\/\/[^\s<>"'`]{1,2000}/i.exec(text.slice(at, at + 2100));
  if (!found) return null;
  let url = found[0].slice(0, lengthWithout(found[0], '.,:;!?*_~]'));
  if (!url.includes('(')) url = url.slice(0, lengthWithout(url, ')'));
  const href = safeLink(url);
  return href ? [{ kind: 'link', href, kids: [{ kind: 'text', text: url }] }, at + url.length] : null;
}
