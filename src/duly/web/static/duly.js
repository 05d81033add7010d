// What the pages do beside being looked at: they stay up to date, and their buttons call the API.
// Nothing is ever built from text: what is shown comes parsed from the server, or is set as text.
"use strict";

const EVERY_MS = 2000;
const SLOWEST_MS = 30000;
const PATIENCE_MS = 15000;
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

function plan(ms) {
  clearTimeout(timer);
  if (!isOver && !document.hidden && document.querySelector("[data-live]")) timer = setTimeout(refresh, ms);
}

async function refresh() {
  try {
    await look();
    wait = EVERY_MS;
    away.hidden = true;
  } catch (error) {
    wait = Math.min(2 * wait, SLOWEST_MS);
    away.textContent = `Not up to date: ${error.message}. Trying again every ${Math.round(wait / 1000)} s.`;
    away.hidden = false;
  }
  plan(wait);
}

async function look() {
  const mine = ++looks;
  // A change may take long, and is waited for. A look that does is made again.
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const response = await answered(location.href, { headers: { Accept: "text/html" }, signal });
  if (response.redirected) {
    isOver = true;
    throw new Error("you are logged out, load the page again");
  }
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!response.ok) {
    const detail = fresh.getElementById("detail");
    throw new Error(detail ? detail.textContent : `the dashboard answers ${response.status}`);
  }
  if (mine !== looks) return; // somebody has looked since, and saw something newer
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
  part.replaceWith(next);
  if (focused) focusAgain(focused, next);
}

// Somebody types in it, or marks a text to copy it.
function isInUse(part) {
  const focused = document.activeElement;
  if (part.contains(focused) && focused.matches("input, textarea, select")) return true;
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
}

function focusAgain(old, part) {
  const href = old.getAttribute("href");
  const same = old.id ? part.querySelector(`#${CSS.escape(old.id)}`)
    : href && part.querySelector(`a[href="${CSS.escape(href)}"]`);
  if (same) same.focus({ preventScroll: true });
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
  const members = Object.entries(JSON.parse(form.dataset.content || "{}")).map(member);
  for (const field of form.querySelectorAll("[name]")) {
    if (field.value.trim() === "") continue;
    members.push(`${JSON.stringify(field.name)}:${typed(field)}`);
  }
  return `{${members.join(",")}}`;
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
  const response = await answered(form.dataset.url, options);
  const answer = response.status === 204 ? {} : await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.detail || `the dashboard answers ${response.status}`);
  return form.dataset.said.replace(/\{(\w+)\}/g, (word, name) => String(answer[name] ?? word));
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
  if (event.target.form) allow(event.target.form);
});

for (const form of document.querySelectorAll("form[data-call]")) allow(form);
sayWhatWasKept();
plan(wait);
