// Questions that a server can answer: the live page hears of them by the event "ask" with {at, token, off}.
drawers.asks = (form, _, article) => {
  const section = form.parentElement;
  form.hidden = section.querySelector(".served").hidden = !document.querySelector(".live");
  section.querySelector(".on-disk").hidden = !form.hidden;
  const ask = () => {
    const detail = { off: form.off.value || undefined, token: form.token.value || undefined };
    if (form.at.value) detail.at = form.at.valueAsNumber;
    document.dispatchEvent(new CustomEvent("ask", { detail }));
  };
  form.addEventListener("submit", event => {
    event.preventDefault();
    ask();
  });
  if (form.hidden) return;
  article.querySelector(".tokens").addEventListener("click", event => {
    const place = event.target.closest(".w")?.dataset.t;
    if (place === undefined || !getSelection().isCollapsed) return;
    form.at.value = place < form.at.max ? Number(place) + 1 : 0;
    form.token.value = "";
    ask();
  });
};
