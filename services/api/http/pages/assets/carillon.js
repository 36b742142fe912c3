// What pages do beyond HTML: times in the reader's zone, the state of the refresh, the theme, and a few conveniences.
// Every page works without this file.
"use strict";

(() => {
  const root = document.documentElement;

  // Times -------------------------------------------------------------------------------------------------------------

  const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  const day = { year: "numeric", month: "2-digit", day: "2-digit" };
  const formatter = (options) => new Intl.DateTimeFormat("sv-SE", options);
  const formats = {
    time: formatter(time), day: formatter(day), full: formatter({ ...day, ...time }), short: formatter({ ...time, second: undefined }),
  };
  const format = (shape, date) => formats[shape].format(date);

  function ago(milliseconds) {
    const seconds = Math.round(Math.abs(milliseconds) / 1000);
    const [count, unit] =
      seconds < 60 ? [seconds, "s"] : seconds < 3600 ? [Math.round(seconds / 60), "min"]
        : seconds < 86_400 ? [Math.round(seconds / 3600), "h"] : [Math.round(seconds / 86_400), "d"];
    return milliseconds >= 0 ? `${count} ${unit} ago` : `in ${count} ${unit}`;
  }

  function text(element) {
    const date = new Date(element.dateTime);
    switch (element.dataset.shape) {
      case "ago": return ago(Date.now() - date);
      case "time": return format("time", date);
      case "full": return format("full", date);
      default: {
        const isToday = format("day", date) === format("day", new Date());
        return isToday ? format("time", date) : `${format("day", date)} ${format("short", date)}`;
      }
    }
  }

  function tellTimes(within) {
    for (const element of within.querySelectorAll("time[datetime]")) {
      const shown = text(element);
      if (element.textContent !== shown) element.textContent = shown;
    }
  }

  // The refresh ---------------------------------------------------------------------------------------------------------

  const main = () => document.getElementById("main");
  const inside = () => document.getElementById("inside");
  let failures = 0;
  let refusal = 0;
  let pausedUntil = 0;
  let asOf = new Date();
  // A session ends when nobody has used it for an hour, also where a page goes on asking for itself.
  let isUsed = true;
  for (const kind of ["pointermove", "pointerdown", "keydown", "wheel", "scroll"]) {
    addEventListener(kind, () => { isUsed = true; }, { capture: true, passive: true });
  }

  function tellRefresh() {
    const element = document.getElementById("refresh");
    if (!element) return;
    const live = failures === 0;
    const time = format("time", asOf);
    element.className = live ? "live" : "stale";
    element.textContent = live ? "live" : `as of ${time}`;
    element.title = live ? `as of ${time}` : "This page goes on asking.";
    const away = document.getElementById("away");
    const said = live ? "" : `Carillon ${refusal ? `answers with ${refusal}` : "does not answer"}. This page is as of ${time}.`;
    away.hidden = live;
    // What is written again is read aloud again.
    if (away.textContent !== said) away.textContent = said;
  }

  function answered(status) {
    if (status < 400) {
      failures = 0;
      pausedUntil = 0;
      asOf = new Date();
    } else {
      failures += 1;
      refusal = status < 500 ? status : 0;
      pausedUntil = Date.now() + Math.min(30_000, 2_000 * 2 ** failures);
    }
    tellRefresh();
  }

  const isTyping = () => {
    const focus = document.activeElement;
    return focus && inside()?.contains(focus) && focus.matches("input:not([type=checkbox]), textarea, select");
  };
  // What moves under the pointer has people press what they did not mean.
  let pointedAt = 0;
  addEventListener("pointermove", () => { pointedAt = Date.now(); }, { capture: true, passive: true });
  const isPointing = () => Date.now() - pointedAt < 1_000 && inside()?.matches(":hover");
  const isChoosing = () => inside()?.querySelector("details.ask[open], input[name=chosen]:checked");

  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    if (ctx.sourceElement !== main()) return;
    if (document.hidden || Date.now() < pausedUntil || isTyping() || isChoosing() || isPointing() || getSelection()?.toString()) {
      event.preventDefault();
      return;
    }
    ctx.request.headers["X-Shown"] = inside()?.dataset.digest ?? "";
    if (isUsed) ctx.request.headers["X-Used"] = "1";
    isUsed = false;
  });

  document.addEventListener("htmx:before:response", (event) => {
    const { ctx } = event.detail;
    if (ctx.sourceElement !== main()) return;
    answered(ctx.response.status);
    if (ctx.response.status >= 400) event.preventDefault();
  });

  // New entries of a list would push down what is under the pointer: a link tells how many there are.
  const keyOf = (row) => row.querySelector("a.row")?.getAttribute("href");

  function holdNewer(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const list = fresh.querySelector("tbody[data-newest]");
    const shown = inside()?.querySelector("tbody[data-newest]");
    if (!list || !shown) return text;
    const rows = [...list.rows];
    const known = new Map([...shown.rows].map((row, index) => [keyOf(row), index]));
    const last = rows.findLastIndex((row) => known.has(keyOf(row)));
    const hasMore = fresh.querySelector("a[rel=next]");
    const newer = rows.filter((row, index) => !known.has(keyOf(row)) && (last < 0 ? hasMore : index < last));
    tellNewer(newer.length, last < 0);
    for (const row of newer) row.remove();
    // What these have pushed out of the answer stays, too.
    const kept = hasMore && newer.length ? [...shown.rows].slice(last < 0 ? 0 : known.get(keyOf(rows[last])) + 1) : [];
    list.append(...kept.map((row) => row.cloneNode(true)));
    return fresh.head.innerHTML + fresh.body.innerHTML;
  }

  function tellNewer(count, isLeast) {
    const link = document.createElement("a");
    link.href = main().getAttribute("hx-get");
    link.textContent = `${count}${isLeast ? "+" : ""} newer`;
    document.getElementById("newer").replaceChildren(...(count ? [link] : []));
  }

  document.addEventListener("htmx:after:request", (event) => {
    const { ctx } = event.detail;
    if (ctx.sourceElement !== main() || ctx.response.status !== 200) return;
    // A proxy in between may answer with a page of its own, such as its sign-in.
    if (ctx.text && !ctx.text.startsWith('<div id="inside"')) {
      event.preventDefault();
      answered(599);
    } else {
      ctx.text = holdNewer(ctx.text);
    }
  });

  document.addEventListener("htmx:error", () => answered(599));
  document.addEventListener("htmx:after:swap", () => prepare(document));

  // Theme -----------------------------------------------------------------------------------------------------------------

  const theme = localStorage.getItem("carillon.theme");
  if (theme) root.dataset.theme = theme;

  function flipTheme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("carillon.theme", root.dataset.theme);
  }

  // Conveniences ------------------------------------------------------------------------------------------------------------

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-flip]")) flipTheme();
    const copier = event.target.closest("[data-copies]");
    if (copier) navigator.clipboard?.writeText(copier.dataset.copies);
  });

  document.addEventListener("change", (event) => {
    const all = event.target.closest("[data-chooses]");
    if (all) {
      for (const box of document.querySelectorAll(`input[name="${all.dataset.chooses}"]`)) box.checked = all.checked;
    }
    if (event.target.closest("[data-submits]")) event.target.form.requestSubmit();
    tellChosen();
  });

  document.addEventListener("submit", (event) => {
    // Twice pressed is once meant.
    for (const button of event.target.querySelectorAll("button[type=submit]")) {
      setTimeout(() => { button.disabled = true; });
    }
  });
  addEventListener("pageshow", () => {
    for (const button of document.querySelectorAll("button[type=submit]:disabled")) button.disabled = false;
  });

  document.addEventListener("keydown", (event) => {
    const asked = event.key === "Escape" && (event.target.closest("details.ask[open]") ?? document.querySelector("details.ask[open]"));
    if (asked) {
      asked.open = false;
      asked.querySelector("summary").focus();
    }
  });

  function tellChosen() {
    const count = document.querySelectorAll("input[name=chosen]:checked").length;
    for (const element of document.querySelectorAll("[data-chosen]")) element.textContent = String(count);
    for (const element of document.querySelectorAll("[data-needs-chosen]")) element.disabled = count === 0;
  }

  function prepare(within) {
    tellTimes(within);
    tellChosen();
  }

  document.addEventListener("DOMContentLoaded", () => {
    root.classList.add("scripted");
    prepare(document);
    for (const form of document.querySelectorAll("form[data-here]")) {
      form.elements[form.dataset.here].value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    }
    tellRefresh();
    setInterval(() => tellTimes(document), 5_000);
  });
})();
