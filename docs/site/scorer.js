// Ranks pages for developers behind those for users, and pages with the title of the query first.
var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) =>
    /CHANGELOG|architecture/.test(page) ? score / 4 : kind === "title" && !anchor ? 4 * score : score,
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
