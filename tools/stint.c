/* stint: chooses the subcommand. */
#include <signal.h>
#include <string.h>

#include "engine/stint.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/terminal.h"

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *what;
} subcommands[] = {
    {"train", train_main, "fine-tune a model on text"},
    {"eval", eval_main, "loss and perplexity of a model on text"},
    {"sample", sample_main, "go on from a prompt"},
    {"new", new_main, "write a small model with random weights"},
};

enum { N_SUBCOMMANDS = sizeof subcommands / sizeof subcommands[0] };

static void help(void) {
  say("stint %s: fine-tunes GGUF models inside a memory plan that is announced before it runs\n\n",
      stint_version());
  for (int i = 0; i < N_SUBCOMMANDS; i++) say("  stint %-8s %s\n", subcommands[i].name, subcommands[i].what);
  say("  memplan        what a run would take, to the byte, before it runs\n\n"
      "Each has a --help. They end with 0, 1 on bad input, 2 when a run does not fit into memory.\n");
}

int main(int argc, char **argv) {
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of a write, with a message, not a kill */
  if (argc < 2) {
    complain("stint: which command? train, eval, sample or new; `stint --help` says more\n");
    return 1;
  }
  if (strcmp(argv[1], "--version") == 0) {
    say("stint %s\n", stint_version());
    return 0;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    help();
    return 0;
  }
  const char *names[N_SUBCOMMANDS];
  for (int i = 0; i < N_SUBCOMMANDS; i++) {
    names[i] = subcommands[i].name;
    if (strcmp(argv[1], names[i]) == 0) return subcommands[i].run(argc - 1, argv + 1);
  }
  const char *const nearest = nearest_name(argv[1], names, N_SUBCOMMANDS);
  if (nearest != NULL)
    complain("stint: unknown command \"%.64s\"; did you mean %s?\n", argv[1], nearest);
  else
    complain("stint: unknown command \"%.64s\"; there are train, eval, sample and new\n", argv[1]);
  return 1;
}
