// A part that has numbers for each token: {name: [number or null, ...]}. A button colors the text by them.
drawers.colors = (part, numbers, article) => {
  const give = (name, isOffer) => {
    article.dispatchEvent(new CustomEvent("color", { detail: { name, values: numbers[name], isOffer } }));
  };
  for (const name of Object.keys(numbers)) give(name, true);
  for (const button of part.querySelectorAll("[data-color]")) button.addEventListener("click", () => {
    give(button.dataset.color, false);
    article.querySelector('[data-draw="tokens"]').scrollIntoView({ block: "start" });
  });
};
