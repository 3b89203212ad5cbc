// The few things every module needs of a page.

export const one = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Listens for an event on whatever matches now or later, within the document.
export function on(event, selector, handler) {
  document.addEventListener(event, (happened) => {
    const found = happened.target instanceof Element && happened.target.closest(selector);
    if (found) handler(happened, found);
  });
}

// HTML that our own server set, as nodes. Scripts in it never run, and it escapes what others wrote.
export function nodes(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export function typing(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}
