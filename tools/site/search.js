// Searches the sections of all pages for all words that are typed.
const input = document.querySelector("#search");
const list = document.querySelector("#found");
const root = input.dataset.root;
let sections;

const load = async () => {
  sections ??= fetch(`${root}search.json`).then((reply) => reply.json());
  return sections;
};

const score = (section, words) => {
  const title = `${section.page} ${section.heading}`.toLowerCase();
  const text = section.words.toLowerCase();
  let sum = 0;
  for (const word of words) {
    if (title.includes(word)) sum += 10;
    else if (text.includes(word)) sum += 1;
    else return 0;
  }
  return sum;
};

const show = async () => {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = words.length ? await load() : [];
  const best = all.map((section) => ({ section, sum: score(section, words) }))
    .filter((one) => one.sum > 0).sort((a, b) => b.sum - a.sum).slice(0, 12);
  list.replaceChildren(...best.map(({ section }) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = root + section.at;
    link.textContent = section.heading;
    const page = document.createElement("small");
    page.textContent = ` ${section.page}`;
    item.append(link, page);
    return item;
  }));
  list.hidden = words.length === 0;
};

input.addEventListener("input", show);
input.form.addEventListener("submit", (event) => {
  event.preventDefault();
  list.querySelector("a")?.click();
});
