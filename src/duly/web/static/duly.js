// What the pages do beside being looked at: they stay up to date, and their buttons call the API.
// Nothing is ever built from text: what is shown comes parsed from the server, or is set as text.
"use strict";

const EVERY_MS = 2000;
const SLOWEST_MS = 30000;
const PATIENCE_MS = 15000;
const SOON_MS = 5000;
const NOTICE_MS = 8000;
const KEPT = "duly notice";

const notice = document.getElementById("notice");
const away = document.getElementById("away");
document.documentElement.classList.add("scripted");

// What is said

let noticeTimer = 0;

function say(text, { isBad = false } = {}) {
  clearTimeout(noticeTimer);
  notice.querySelector("p").textContent = text;
  notice.classList.toggle("bad", isBad);
  notice.hidden = false;
  // What went wrong stays until somebody has closed it.
  if (!isBad) noticeTimer = setTimeout(() => { notice.hidden = true; }, NOTICE_MS);
}

notice.querySelector("button").addEventListener("click", () => { notice.hidden = true; });

function sayAfterLeaving(text) {
  try { sessionStorage.setItem(KEPT, text); } catch { /* a browser that keeps nothing */ }
}

function sayWhatWasKept() {
  try {
    const kept = sessionStorage.getItem(KEPT);
    sessionStorage.removeItem(KEPT);
    if (kept) say(kept);
  } catch { /* a browser that keeps nothing */ }
}

// Staying up to date

let wait = EVERY_MS;
let timer = 0;
let looks = 0;
let isOver = false;
let seenAt = new Date();
const isFailure = document.querySelector("[data-live=failure]") !== null;

function plan(ms) {
  clearTimeout(timer);
  if (!isOver && !document.hidden && document.querySelector("[data-live]")) timer = setTimeout(refresh, ms);
}

async function refresh() {
  const late = setTimeout(() => { if (!isFailure) warn(stale("the dashboard has not answered yet.")); }, SOON_MS);
  try {
    await look();
    wait = EVERY_MS;
    if (!isOver) away.hidden = true;
  } catch (error) {
    wait = Math.min(2 * wait, SLOWEST_MS);
    const again = `Trying again every ${Math.round(wait / 1000)} s.`;
    if (!isOver) warn(isFailure ? again : stale(`${error.message}. ${again}`));
  }
  clearTimeout(late);
  plan(wait);
}

function warn(...content) {
  away.replaceChildren(...content);
  away.hidden = false;
}

function stale(why) {
  return `Not up to date since ${seenAt.toISOString().slice(11, 19)} UTC: ${why}`;
}

// The page has seen its last: it is not refreshed any more.
function end(...content) {
  isOver = true;
  clearTimeout(timer);
  warn(...content);
}

function endSession() {
  const link = document.createElement("a");
  link.href = location.href; // which leads to the page that asks for a token, and back
  link.textContent = "Sign in again";
  end("You are signed out. ", link);
}

// What the page is about is finished or cancelled: nothing can be done with it.
function endWith(head) {
  for (const each of head.querySelectorAll(".actions, .line")) each.remove();
  for (const mark of head.querySelectorAll(".mark")) mark.textContent = "gone";
  end(head.dataset.gone);
}

async function look() {
  const mine = ++looks;
  // A change may take long, and is waited for. A look that does is made again.
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const response = await answered(location.href, { headers: { Accept: "text/html" }, signal });
  const head = document.querySelector("[data-gone]");
  if (response.redirected) return endSession();
  if (response.status === 404 && head) return endWith(head);
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!response.ok) {
    const detail = fresh.getElementById("detail");
    throw new Error(detail ? detail.textContent : `the dashboard answers ${response.status}`);
  }
  if (mine !== looks) return; // somebody has looked since, and saw something newer
  if (isFailure) return location.reload(); // there is something to show again
  seenAt = new Date();
  for (const part of document.querySelectorAll("[data-live]")) replace(part, fresh);
}

function replace(part, fresh) {
  const found = fresh.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
  if (!found || isInUse(part)) return;
  const next = document.importNode(found, true);
  for (const open of part.querySelectorAll("details[id]")) {
    const same = next.querySelector(`#${CSS.escape(open.id)}`);
    if (same) same.open = open.open;
  }
  if (part.isEqualNode(next)) return;
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = part.scrollLeft;
  part.replaceWith(next);
  next.scrollLeft = scrolled;
  if (focused) focusAgain(focused, next);
}

// Somebody types in it, or marks a text to copy it.
function isInUse(part) {
  const focused = document.activeElement;
  if (part.contains(focused) && focused.matches("input, textarea, select")) return true;
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
}

// Where there is nothing like it any more, what is around it has the focus: not the very beginning of the page.
function focusAgain(old, part) {
  const around = part.parentElement.closest("[tabindex]");
  (likeness(old, part) || around).focus({ preventScroll: true });
}

function likeness(old, part) {
  const href = old.getAttribute("href");
  if (old.id) return part.querySelector(`#${CSS.escape(old.id)}`);
  if (href) return part.querySelector(`a[href="${CSS.escape(href)}"]`);
  const home = old.closest("[id]");
  return home && part.querySelector(`#${CSS.escape(home.id)} > ${old.localName}`);
}

// Of a row that is wider than the screen, the tab that is chosen is shown.
function showTab() {
  const tab = document.querySelector(".tabs [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft + tab.offsetWidth / 2 - tab.parentElement.clientWidth / 2;
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : plan(0)));

// Calling the API

function answered(url, options) {
  return fetch(url, { credentials: "same-origin", cache: "no-store", ...options }).catch(() => {
    throw new Error("the dashboard does not answer");
  });
}

// The content of a form as JSON. JSON that somebody typed is sent as it is: read and written again,
// large numbers would be others.
function contentOf(form) {
  const members = Object.entries({ ...JSON.parse(form.dataset.content || "{}"), ...markOf(form) }).map(member);
  for (const field of form.querySelectorAll("[name]")) {
    if (field.value.trim() === "") continue;
    members.push(`${JSON.stringify(field.name)}:${typed(field)}`);
  }
  return `{${members.join(",")}}`;
}

// A form that stores something gives it a mark of its own, and keeps that until it has succeeded or was changed: when
// the answer was lost and it is sent again, the server knows it by that, and stores it once.
const marks = new WeakMap();
const MARKED_S = 86400;

function markOf(form) {
  if (!("once" in form.dataset)) return {};
  if (!marks.has(form)) marks.set(form, newMark());
  return { dedup: marks.get(form), dedup_for: MARKED_S };
}

function newMark() {
  const parts = [...crypto.getRandomValues(new Uint32Array(4))];
  return `form-${parts.map((each) => each.toString(36)).join("-")}`;
}

function member([name, value]) {
  return `${JSON.stringify(name)}:${JSON.stringify(value)}`;
}

function typed(field) {
  if (field.dataset.kind === "number") return JSON.stringify(Number(field.value));
  if (field.dataset.kind !== "json") return JSON.stringify(field.value);
  try {
    JSON.parse(field.value);
  } catch (error) {
    throw new Error(`The ${field.name} is not JSON: ${error.message}. A text is written in quotes.`);
  }
  return field.value;
}

async function call(form) {
  const method = form.dataset.call;
  const options = { method, headers: { Accept: "application/json" } };
  if (method !== "DELETE") {
    options.headers["Content-Type"] = "application/json";
    options.body = contentOf(form);
  }
  const response = await answered(form.dataset.url, options).catch((error) => {
    throw new Error(unsure(form, error.message));
  });
  const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
  if (response.status === 401) {
    endSession();
    throw new Error("You are signed out. Sign in again.");
  }
  const why = answer.detail || `the dashboard answers ${response.status}`;
  if (!response.ok) throw new Error(response.status < 500 ? why : unsure(form, why));
  return told(form, answer);
}

function unsure(form, why) {
  return "once" in form.dataset ? `${why}. It may have been sent all the same: sending it again is safe.` : why;
}

// What is to be said, filled in once: an id that is put in may have braces of its own, and stays as it is.
// {purged|message is|messages are} is the number and the words that go with it.
function told(form, answer) {
  const known = { ...answer, about: form.dataset.about };
  return form.dataset.said.replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (word, name, one, many) => {
    if (!Object.hasOwn(known, name)) return word;
    return one === undefined ? String(known[name]) : `${known[name]} ${known[name] === 1 ? one : many}`;
  });
}

// A form that waits for its answer is not sent again. Its button is not disabled: that would take the focus from it.
const busy = new WeakSet();

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.call) return;
  event.preventDefault();
  if (busy.has(form)) return;
  if (form.dataset.ask && !window.confirm(form.dataset.ask)) return;
  busy.add(form);
  try {
    const said = await call(form);
    marks.delete(form);
    if (form.dataset.then) {
      sayAfterLeaving(said);
      location.assign(form.dataset.then);
      return;
    }
    say(said);
    form.reset();
    await refresh();
  } catch (error) {
    say(error.message, { isBad: true });
  }
  busy.delete(form);
  allow(form);
});

// A button that destroys waits for the name to be typed.
function allow(form) {
  const names = form.querySelectorAll("[data-must-be]");
  const isTyped = [...names].every((each) => each.value === each.dataset.mustBe);
  if (names.length) form.querySelector("button").disabled = !isTyped;
}

document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (!form) return;
  marks.delete(form);
  allow(form);
});

for (const form of document.querySelectorAll("form[data-call]")) allow(form);
showTab();
sayWhatWasKept();
plan(wait);
