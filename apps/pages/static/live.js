// Lets the timeline move by itself: the server sends pieces of the page as posts come and go.
"use strict";

const list = document.querySelector("[data-events]");
const events = new EventSource(list.dataset.events);

// Later posts stand above earlier ones; an id starts with the time.
function insert(item) {
  document.getElementById(item.id)?.remove();
  const below = [...list.children].find((other) => other.id < item.id);
  list.insertBefore(item, below ?? null);
  document.getElementById("empty")?.remove();
}

function pieces(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return [...template.content.children];
}

events.addEventListener("init", (event) => {
  list.replaceChildren(...pieces(JSON.parse(event.data)));
});

events.addEventListener("update", (event) => {
  for (const item of pieces(JSON.parse(event.data))) {
    item.classList.add("new");
    insert(item);
  }
});

events.addEventListener("remove", (event) => {
  document.getElementById(JSON.parse(event.data))?.remove();
});
