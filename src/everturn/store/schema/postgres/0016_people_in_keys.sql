-- On Matrix people come into a direct chat and leave it, so the person belongs to its session key. A key moves to the only
-- person who wrote under it, with everything that happens there. Where several did, or somebody whose messages are forgotten,
-- nobody inherits the conversation: it stays under the old key, which no message finds any more, and finishes its open turn there
-- (who was asked for an approval answers with its number).
-- Each author gets their queued messages, and a copy of the sessions that hold their words: /resume lists it.
CREATE FUNCTION rekey_at(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN RETURN nullif($1::json #>> $2, ''); EXCEPTION WHEN others THEN RETURN NULL; END $$; -- a damaged row harms no other
CREATE FUNCTION rekey_person_in(text) RETURNS text LANGUAGE sql AS
$$ SELECT coalesce(rekey_at($1, 'user_id_alt'), rekey_at($1, 'user_id')) $$;
CREATE TABLE rekey_key AS
SELECT key FROM (
  SELECT key FROM entry UNION SELECT key FROM inbox UNION SELECT key FROM restart UNION SELECT key FROM pairing) k
WHERE split_part(key, ':', 1)='agent' AND split_part(key, ':', 3) ~ '^matrix(@|$)' AND split_part(key, ':', 4)='dm'
  AND split_part(key, ':', 5)<>'' AND key NOT LIKE '%:@%'
  AND length(key)<=1500; -- with a person an index has room for it
CREATE UNIQUE INDEX rekey_keys ON rekey_key(key);
-- Who wrote each message that is still known.
CREATE TABLE rekey_said AS
SELECT i.id, i.key, i.turn, i.account, rekey_at(i.source, 'chat_id') AS chat, rekey_person_in(i.source) AS person
FROM inbox i JOIN rekey_key k ON k.key=i.key WHERE i.kind IN ('message', 'command');
CREATE INDEX rekey_said_turn ON rekey_said(turn);
-- What is not of a conversation: it follows the person it speaks of.
CREATE TABLE rekey_own AS
SELECT o.what, o.id, o.key, rekey_person_in(o.source) AS person FROM (
  SELECT 'restart' AS what, id, key, source FROM restart UNION ALL SELECT 'pairing', id, key, source FROM pairing
  UNION ALL SELECT 'outbox', id, key, source FROM outbox
  WHERE ended_at IS NULL AND (turn IS NULL OR turn NOT IN (SELECT id FROM turn WHERE ended_at IS NULL))
) o JOIN rekey_key k ON k.key=o.key;
CREATE TABLE rekey_person AS
SELECT p.person, (
  SELECT string_agg(CASE WHEN strpos('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~+-', c)>0 THEN c
    ELSE regexp_replace(upper(encode(convert_to(c, 'UTF8'), 'hex')), '(..)', '%\1', 'g') END, '' ORDER BY place)
  FROM regexp_split_to_table(p.person, '') WITH ORDINALITY AS letter(c, place)) AS escaped
FROM (SELECT person FROM rekey_said UNION SELECT person FROM rekey_own) p WHERE length(p.person)<=300;
UPDATE rekey_person SET escaped=replace(escaped, '.', '%2E') WHERE escaped='.' OR escaped LIKE '%..%';
CREATE UNIQUE INDEX rekey_people ON rekey_person(person);
-- The rows that a session's model sees: its own, and those that were summed up into it.
CREATE TABLE rekey_chain AS
WITH RECURSIVE chain(key, session_id, part) AS (
  SELECT s.key, s.session_id, s.session_id FROM session s JOIN rekey_key k ON k.key=s.key
  UNION SELECT c.key, c.session_id, p.session_id FROM chain c JOIN session s ON s.session_id=c.part
  JOIN session p ON p.session_id=s.parent AND p.end_reason='compaction'
)
SELECT key, session_id, part FROM chain;
-- Sessions with words of somebody who is not known any more: messages are forgotten before transcripts are.
CREATE TABLE rekey_unknown AS
SELECT DISTINCT session_id FROM (
  SELECT c.session_id, c.part, m.turn, count(*) AS said FROM rekey_chain c
  JOIN message m ON m.session_id=c.part AND m.role='user' GROUP BY c.session_id, c.part, m.turn) w
WHERE w.said>(SELECT count(*) FROM rekey_said i WHERE i.turn=w.turn AND i.person IS NOT NULL);
CREATE TABLE rekey_moved AS
SELECT p.key, p.key || ':@' || n.escaped AS new_key, p.person FROM (
  SELECT i.key, min(i.person) AS person FROM rekey_said i
  GROUP BY i.key HAVING count(*)=count(i.person) AND count(DISTINCT i.person)=1
) p JOIN rekey_person n ON n.person=p.person JOIN entry e ON e.key=p.key
WHERE (e.session_id IS NULL OR e.session_id NOT IN (SELECT session_id FROM rekey_unknown));
CREATE UNIQUE INDEX rekey_moves ON rekey_moved(key);

-- One person: everything moves, but for earlier sessions in which somebody else may have written.
UPDATE turn SET key=r.new_key FROM rekey_moved r WHERE r.key=turn.key AND session_id NOT IN (SELECT session_id FROM rekey_unknown);
UPDATE session SET key=r.new_key FROM rekey_moved r WHERE r.key=session.key AND session_id NOT IN (SELECT session_id FROM rekey_unknown);
UPDATE entry SET key=r.new_key FROM rekey_moved r WHERE r.key=entry.key;
UPDATE inbox SET key=r.new_key FROM rekey_moved r WHERE r.key=inbox.key;
UPDATE outbox SET key=r.new_key FROM rekey_moved r WHERE r.key=outbox.key;
UPDATE event SET key=r.new_key FROM rekey_moved r WHERE r.key=event.key;
UPDATE approval SET key=r.new_key FROM rekey_moved r WHERE r.key=approval.key;
UPDATE action SET target=r.new_key FROM rekey_moved r WHERE r.key=action.target;
UPDATE action SET key=r.new_key FROM rekey_moved r WHERE r.key=action.key;
UPDATE spending SET who='key:' || r.new_key FROM rekey_moved r WHERE 'key:' || r.key=spending.who;
UPDATE turn SET planned_who='key:' || r.new_key FROM rekey_moved r WHERE 'key:' || r.key=turn.planned_who;
UPDATE allowance SET scope='key:' || r.new_key FROM rekey_moved r WHERE 'key:' || r.key=allowance.scope;
UPDATE memory SET scope=substr(memory.scope, 1, length(memory.scope) - 1) || ',' || to_json(c.person)::text || ']' FROM (
  SELECT m.scope, min(i.person) AS person FROM memory m JOIN rekey_said i
    ON i.account=rekey_at(m.scope, '3') AND i.chat=rekey_at(m.scope, '5')
    AND substr(i.key, 1, length(rekey_at(m.scope, '1')) + 7)='agent:' || rekey_at(m.scope, '1') || ':'
  LEFT JOIN rekey_moved r ON r.key=i.key
  WHERE m.scope LIKE '["chat",%' AND rekey_at(m.scope, '2')='matrix' AND rekey_at(m.scope, '6') IS NULL
  GROUP BY m.scope HAVING count(*)=count(r.key) AND count(DISTINCT i.person)=1
) c WHERE c.scope=memory.scope;
UPDATE restart SET key=restart.key || ':@' || n.escaped FROM rekey_own o JOIN rekey_person n ON n.person=o.person
WHERE o.what='restart' AND o.id=restart.id;
UPDATE pairing SET key=pairing.key || ':@' || n.escaped FROM rekey_own o JOIN rekey_person n ON n.person=o.person
WHERE o.what='pairing' AND o.id=pairing.id;

-- Several people, or somebody unknown.
CREATE TABLE rekey_copy AS
SELECT a.session_id, a.session_id || '-' || row_number() OVER (PARTITION BY a.session_id ORDER BY a.person) AS copy,
  a.key || ':@' || n.escaped AS new_key
FROM (
  SELECT DISTINCT c.key, c.session_id, i.person FROM rekey_chain c JOIN session s ON s.session_id=c.session_id
  JOIN message m ON m.session_id=c.part AND m.role='user' JOIN rekey_said i ON i.turn=m.turn
  WHERE (s.end_reason IS NULL OR s.end_reason<>'compaction') AND c.key NOT IN (SELECT key FROM rekey_moved)
    AND m.turn NOT IN (SELECT id FROM turn WHERE ended_at IS NULL)
) a JOIN rekey_person n ON n.person=a.person;
-- An open turn goes on under the old key: its rows are not a part of the copy.
INSERT INTO message (session_id, seq, role, content, calls, call_id, unknown, extra, author, turn, attempt, hidden, at)
SELECT c.copy, m.seq, m.role, m.content, m.calls, m.call_id, m.unknown, m.extra, m.author, m.turn, m.attempt, m.hidden, m.at
FROM rekey_copy c JOIN message m ON m.session_id=c.session_id
WHERE m.turn IS NULL OR m.turn NOT IN (SELECT id FROM turn WHERE ended_at IS NULL) ORDER BY c.copy, m.seq;
INSERT INTO session (session_id, key, parent, started_at, ended_at, end_reason, title, first_words, mark, messages, frozen, model)
SELECT c.copy, c.new_key, s.parent, s.started_at, coalesce(s.ended_at, m.at, s.started_at), coalesce(s.end_reason, 'switched'),
  s.title, s.first_words, s.mark, coalesce(m.seq, 0), s.frozen, s.model
FROM rekey_copy c JOIN session s ON s.session_id=c.session_id
LEFT JOIN (SELECT session_id, max(seq) AS seq, max(at) AS at FROM message GROUP BY session_id) m ON m.session_id=c.copy
ORDER BY s.id, c.copy;
-- Dead letters, too: an operator may run them again.
CREATE TABLE rekey_queued AS
SELECT i.id, i.key, i.state, i.key || ':@' || n.escaped AS new_key FROM inbox i JOIN rekey_said w ON w.id=i.id JOIN rekey_key k ON k.key=i.key
JOIN rekey_person n ON n.person=w.person WHERE i.state='waiting' OR i.dead_at IS NOT NULL;
INSERT INTO entry (key, origin, created_at, active_at, waiting, arrivals)
SELECT q.new_key, i.source, e.created_at, e.active_at, q.queued, e.arrivals
FROM (SELECT key, new_key, max(id) AS id, sum(CASE state WHEN 'waiting' THEN 1 ELSE 0 END) AS queued FROM rekey_queued GROUP BY key, new_key) q
JOIN entry e ON e.key=q.key JOIN inbox i ON i.id=q.id;
UPDATE entry SET waiting=waiting-q.queued FROM (
  SELECT key, count(*) AS queued FROM rekey_queued WHERE state='waiting' GROUP BY key) q WHERE q.key=entry.key;
UPDATE inbox SET key=q.new_key FROM rekey_queued q WHERE q.id=inbox.id;
UPDATE outbox SET key=outbox.key || ':@' || n.escaped FROM rekey_own o JOIN rekey_person n ON n.person=o.person
WHERE o.what='outbox' AND o.id=outbox.id AND outbox.key=o.key;

DROP TABLE rekey_key;
DROP TABLE rekey_said;
DROP TABLE rekey_own;
DROP TABLE rekey_person;
DROP TABLE rekey_chain;
DROP TABLE rekey_unknown;
DROP TABLE rekey_moved;
DROP TABLE rekey_copy;
DROP TABLE rekey_queued;
DROP FUNCTION rekey_person_in(text);
DROP FUNCTION rekey_at(text, text[]);
