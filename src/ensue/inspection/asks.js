// A form of requests to a server: the event "ask" with {at, token, off} passes them to the live page.
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
    const position = event.target.closest(".w")?.dataset.t;
    if (position === undefined || !getSelection().isCollapsed) return;
    form.at.value = position < form.at.max ? Number(position) + 1 : 0;
    form.token.value = "";
    ask();
  });
};
