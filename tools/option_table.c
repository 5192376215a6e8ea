/* The option table: a row for each option, the commands with their usage, and what is not the library's to default. */
#include <stddef.h>

#include "tools/option_table.h"

#define AT(field)    offsetof(tool_options, field)
#define MEMPLAN      COMMAND_MEMPLAN
#define TRAIN        COMMAND_TRAIN
#define EVAL         COMMAND_EVAL
#define SAMPLE       COMMAND_SAMPLE
#define NEW          COMMAND_NEW
#define PLANNED      (MEMPLAN | TRAIN)
#define RUNS         (MEMPLAN | TRAIN | EVAL | SAMPLE)
#define WIDEST       1048576.0 /* 2^20: the widest dimension that makes sense */
#define LONGEST      8388608.0 /* 2^23: tokens of the longest row */
#define MOST_THREADS 512.0
#define MOST_STEPS   1e12

const option option_table[] = {
    {"--data", KIND_FILES, GROUP_FILES, "FILE", NULL, 0, 0, false, TRAIN | EVAL, AT(data),
     "text, or .jsonl with a `text` member a line; may be given several times"},
    {"--valid", KIND_FILES, GROUP_FILES, "FILE", NULL, 0, 0, false, TRAIN, AT(valid),
     "held-out text, evaluated before and after; may be given several times"},
    {"--adapter", KIND_TEXT, GROUP_FILES, "FILE", NULL, 0, 0, false, RUNS, AT(run.adapter),
     "a LoRA adapter (GGUF) to train on, or to put on the model"},
    {"-o", KIND_TEXT, GROUP_FILES, "DIR", NULL, 0, 0, false, TRAIN, AT(output),
     "the run directory, made when missing"},
    {"-o", KIND_TEXT, GROUP_FILES, "FILE", NULL, 0, 0, false, NEW, AT(output), "the model file to write"},

    {"--ctx", KIND_INT, GROUP_SHAPE, "N", NULL, 1, LONGEST, false, RUNS, AT(run.ctx),
     "tokens a row; unless given 256, or what the model was trained for if less"},
    {"--batch", KIND_INT, GROUP_SHAPE, "N", NULL, 1, 65536, false, PLANNED | EVAL, AT(run.batch),
     "rows a microbatch"},
    {"--accum", KIND_INT, GROUP_SHAPE, "N", NULL, 1, WIDEST, false, PLANNED, AT(run.accum),
     "microbatches a step"},

    {"--full", KIND_FLAG, GROUP_WHAT, NULL, NULL, 0, 0, false, PLANNED, AT(run.full),
     "train every weight of an F32 model instead of an adapter"},
    {"--rank", KIND_INT, GROUP_WHAT, "N", NULL, 1, 4096, false, PLANNED, AT(run.rank),
     "the adapter's rank; unless given 8, or that of --adapter"},
    {"--alpha", KIND_REAL, GROUP_WHAT, "X", NULL, 0, 1e6, true, PLANNED, AT(run.alpha),
     "the adapter is scaled by alpha/rank; unless given twice the rank, or that of --adapter"},
    {"--dropout", KIND_REAL, GROUP_WHAT, "P", NULL, 0, 0.99, false, PLANNED, AT(run.dropout),
     "share of the adapter's inputs dropped in training"},
    {"--targets", KIND_TEXT, GROUP_WHAT, "NAMES", NULL, 0, 0, false, PLANNED, AT(run.targets),
     "\"all-linear\", or names and patterns: attn_q,attn_v,blk.3.*"},

    {"--steps", KIND_INT, GROUP_HOW, "N", NULL, 1, MOST_STEPS, false, TRAIN, AT(run.steps),
     "optimizer steps; excludes --epochs"},
    {"--epochs", KIND_REAL, GROUP_HOW, "X", NULL, 0, 1e6, true, TRAIN, AT(run.epochs),
     "passes over the data; excludes --steps"},
    {"--optimizer", KIND_CHOICE, GROUP_HOW, "NAME", "adamw|sgd", 0, 0, false, PLANNED, AT(run.optimizer),
     "the optimizer"},
    {"--lr", KIND_REAL, GROUP_HOW, "X", NULL, 0, 999, true, TRAIN, AT(run.lr), "the peak learning rate"},
    {"--lr-floor", KIND_REAL, GROUP_HOW, "X", NULL, 0, 1, false, TRAIN, AT(run.lr_floor),
     "the schedule ends at this share of --lr"},
    {"--warmup", KIND_INT, GROUP_HOW, "N", NULL, 0, MOST_STEPS, false, TRAIN, AT(run.warmup),
     "steps in which the rate rises from 0"},
    {"--schedule", KIND_CHOICE, GROUP_HOW, "NAME", "constant|linear|cosine", 0, 0, false, TRAIN,
     AT(run.schedule), "the learning rate after warm-up"},
    {"--clip", KIND_REAL, GROUP_HOW, "X", NULL, 0, 1e6, false, TRAIN, AT(run.clip),
     "largest norm of a step's gradient; 0: no limit"},
    {"--weight-decay", KIND_REAL, GROUP_HOW, "X", NULL, 0, 100, false, TRAIN, AT(run.weight_decay),
     "decoupled"},
    {"--beta1", KIND_REAL, GROUP_HOW, "X", NULL, 0, 0.999999, false, TRAIN, AT(run.beta1), "AdamW"},
    {"--beta2", KIND_REAL, GROUP_HOW, "X", NULL, 0, 0.999999, false, TRAIN, AT(run.beta2), "AdamW"},
    {"--epsilon", KIND_REAL, GROUP_HOW, "X", NULL, 0, 1, true, TRAIN, AT(run.epsilon), "AdamW"},
    {"--momentum", KIND_REAL, GROUP_HOW, "X", NULL, 0, 0.999999, false, PLANNED, AT(run.momentum), "SGD"},
    {"--seed", KIND_SEED, GROUP_HOW, "N", NULL, 0, 0, false, TRAIN, AT(run.seed),
     "of the adapter's start, the order of the rows, dropout"},
    {"--eval-every", KIND_INT, GROUP_HOW, "N", NULL, 0, MOST_STEPS, false, TRAIN, AT(run.eval_every),
     "steps between evaluations of --valid; 0: only at the end"},
    {"--save-every", KIND_INT, GROUP_HOW, "N", NULL, 0, MOST_STEPS, false, TRAIN, AT(run.save_every),
     "steps between saves; 0: only at the end"},

    {"--prompt", KIND_TEXT, GROUP_HOW, "TEXT", NULL, 0, 0, false, SAMPLE, AT(prompt),
     "the text to go on from"},
    {"--tokens", KIND_INT, GROUP_HOW, "N", NULL, 1, LONGEST, false, SAMPLE, AT(n_tokens),
     "tokens to write at most"},
    {"--temperature", KIND_REAL, GROUP_HOW, "X", NULL, 0, 100, false, SAMPLE, AT(sample.temperature),
     "0: always the likeliest token"},
    {"--top-k", KIND_INT, GROUP_HOW, "N", NULL, 0, LONGEST, false, SAMPLE, AT(sample.top_k),
     "draw among the N likeliest; 0: all"},
    {"--top-p", KIND_REAL, GROUP_HOW, "P", NULL, 0, 1, true, SAMPLE, AT(sample.top_p),
     "draw among the likeliest that sum to P"},
    {"--seed", KIND_SEED, GROUP_HOW, "N", NULL, 0, 0, false, SAMPLE, AT(sample.seed), "of the draws"},

    {"--embd", KIND_INT, GROUP_SHAPE, "N", NULL, 1, WIDEST, false, NEW, AT(made.n_embd), "width of a token"},
    {"--layers", KIND_INT, GROUP_SHAPE, "N", NULL, 1, 4096, false, NEW, AT(made.n_layers), "layers"},
    {"--heads", KIND_INT, GROUP_SHAPE, "N", NULL, 1, 4096, false, NEW, AT(made.n_heads),
     "heads of attention"},
    {"--kv-heads", KIND_INT, GROUP_SHAPE, "N", NULL, 1, 4096, false, NEW, AT(made.n_kv_heads),
     "of keys and values; divides --heads"},
    {"--ff", KIND_INT, GROUP_SHAPE, "N", NULL, 1, WIDEST, false, NEW, AT(made.n_ff),
     "width of the gated unit"},
    {"--ctx", KIND_INT, GROUP_SHAPE, "N", NULL, 1, LONGEST, false, NEW, AT(made.ctx),
     "context that the model declares"},
    {"--tied", KIND_FLAG, GROUP_SHAPE, NULL, NULL, 0, 0, false, NEW, AT(made.tied),
     "the head shares the embedding's weights"},
    {"--seed", KIND_SEED, GROUP_SHAPE, "N", NULL, 0, 0, false, NEW, AT(made.seed), "of the weights"},

    {"--for", KIND_CHOICE, GROUP_MACHINE, "WHAT", "train|eval|sample", 0, 0, false, MEMPLAN, AT(purpose),
     "what to plan"},
    {"--threads", KIND_THREADS, GROUP_MACHINE, "N", NULL, 0, MOST_THREADS, false, RUNS, AT(run.threads),
     "0: one for each processor of this process"},
    {"--budget", KIND_BYTES, GROUP_MACHINE, "SIZE", NULL, 0, 0, false, RUNS, AT(run.budget_bytes),
     "most that the plan may take (6GiB, 512MiB, bytes); 0: what the machine has"},
    {"--device", KIND_CHOICE, GROUP_MACHINE, "NAME", "cpu|cuda", 0, 0, false, RUNS, AT(run.device),
     "where it runs; cuda: one GPU"},
    {"--numerics", KIND_CHOICE, GROUP_MACHINE, "NAME", "strict|fast", 0, 0, false, RUNS, AT(run.numerics),
     "of a GPU: strict has the CPU's bits; fast uses cuBLAS and tensor cores"},
    {"--gpu", KIND_TEXT, GROUP_MACHINE, "NAME", NULL, 0, 0, false, MEMPLAN, AT(run.device_name),
     "plan for this GPU by its name (\"RTX 4090\"), less what context and libraries take"},
    {"--device-memory", KIND_BYTES, GROUP_MACHINE, "SIZE", NULL, 0, 0, false, RUNS,
     AT(run.device_memory_bytes),
     "plan for a GPU with so much free memory; unless given, what the GPU that is here has"},
    {"--cpu-mask", KIND_PATHS, GROUP_MACHINE, "PATHS", NULL, 0, 0, false, RUNS, AT(run.cpu_mask),
     "vector paths allowed: none, avx2, avx512, all or a number; no result depends on it"},
    {"--loss-chunk", KIND_INT, GROUP_MACHINE, "N", NULL, 0, LONGEST, false, PLANNED | EVAL,
     AT(run.loss_chunk), "rows of logits at a time; 0: the planner's choice"},
    {"--attention-chunk", KIND_INT, GROUP_MACHINE, "N", NULL, 0, 4096, false, PLANNED | EVAL,
     AT(run.attention_chunk), "queries at a time; 0: the planner's choice"},

    {"--json", KIND_FLAG, GROUP_OUTPUT, NULL, NULL, 0, 0, false, MEMPLAN | EVAL, AT(json),
     "print one JSON object and nothing else"},
};

const int n_option_rows = sizeof option_table / sizeof option_table[0];
_Static_assert(sizeof option_table / sizeof option_table[0] <= OPTION_ROWS_MAX,
               "tool_options.given has a bit for each row");

const command_text command_texts[] = {
    {MEMPLAN, "memplan", "MODEL [options]",
     "Says what a run would take, to the byte, before anything runs.\n"
     "MODEL is a GGUF file; its header alone is enough. Ends with 0 when the plan fits, 2 when it does not, "
     "1 on bad input."},
    {TRAIN, "stint train", "MODEL --data FILE -o DIR [options]",
     "Fine-tunes a GGUF model inside a memory plan. Ctrl-C finishes the step and saves; a second one kills."},
    {EVAL, "stint eval", "MODEL --data FILE [options]",
     "Mean loss a token and perplexity of a model on text."},
    {SAMPLE, "stint sample", "MODEL --prompt TEXT [options]", "Goes on from a prompt."},
    {NEW, "stint new", "-o FILE [options]",
     "Writes a small llama with seeded random weights and a byte-level tokenizer, as GGUF."},
};

const int n_command_texts = sizeof command_texts / sizeof command_texts[0];

void option_defaults(tool_options *out) {
  *out = (tool_options){.n_tokens = 128, .prompt = "", .purpose = STINT_TRAIN};
  stint_options_default(&out->run);
  stint_new_options_default(&out->made);
  out->sample = (stint_sample_options){.temperature = 0.8, .top_k = 40, .top_p = 0.95, .seed = 0};
}
