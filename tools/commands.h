/* The subcommands of `stint`: each reads its own command line, argv[0] being its name, and returns an exit code. */
#ifndef STINT_TOOLS_COMMANDS_H
#define STINT_TOOLS_COMMANDS_H

int train_main(int argc, char **argv);
int eval_main(int argc, char **argv);
int sample_main(int argc, char **argv);
int new_main(int argc, char **argv);

#endif
