/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of the program, `kvbench NAME …`, and their options as tables, which serve both parsing and help. Forms:
 * `--name value`, `--name=value`, `-o value`; `--help` prints usage on stdout.
 */
#ifndef KVB_COMMAND_LINE_H
#define KVB_COMMAND_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes, the same for all commands. */
enum {
    KVB_EXIT_OK = 0,        /* all good */
    KVB_EXIT_FAILED = 1,    /* a check failed */
    KVB_EXIT_USAGE = 2,     /* bad usage or bad input */
    KVB_EXIT_MACHINE = 3,   /* this machine cannot do it */
    KVB_EXIT_UNDECIDED = 4, /* compare --strict: nothing is known to be worse, but not all can be decided */
};

typedef enum kvb_option_kind {
    KVB_OPTION_FLAG,   /* bool */
    KVB_OPTION_TEXT,   /* const char *, not empty */
    KVB_OPTION_WORDS,  /* kvb_words: repeatable, each word once */
    KVB_OPTION_NUMBER, /* uint64_t of min .. max */
    KVB_OPTION_CHOICE, /* an int or enum: the index of the word in `words` */
} kvb_option_kind;

typedef struct kvb_option {
    const char *name;     /* "--suite", or "-o" */
    const char *argument; /* "NAME"; NULL for a flag */
    const char *help;     /* one line */
    kvb_option_kind kind;
    size_t field;      /* offset of the value in the caller's struct */
    uint64_t min, max; /* of a number */
    const char *words; /* of a choice: its name and its words: "format: table, md, csv" */
} kvb_option;

/* The last fields of a kvb_option: its kind, the member of `type` for its value, and its limits. */
#define KVB_FLAG(type, member)             KVB_OPTION_FLAG, offsetof(type, member), 0, 0, NULL
#define KVB_TEXT(type, member)             KVB_OPTION_TEXT, offsetof(type, member), 0, 0, NULL
#define KVB_WORDS(type, member)            KVB_OPTION_WORDS, offsetof(type, member), 0, 0, NULL
#define KVB_NUMBER(type, member, min, max) KVB_OPTION_NUMBER, offsetof(type, member), min, max, NULL
#define KVB_CHOICE(type, member, words)    KVB_OPTION_CHOICE, offsetof(type, member), 0, 0, words
#define KVB_FORMAT(type, member, more)                                                                                 \
    KVB_CHOICE(type, member, "format: table, md, csv, json" more) /* kvb_table_format */
#define KVB_OPTIONS_END                                                                                                \
    {                                                                                                                  \
        NULL, NULL, NULL, KVB_OPTION_FLAG, 0, 0, 0, NULL                                                               \
    }

/* A row that prints a heading in the help. */
#define KVB_OPTIONS_OF(heading)                                                                                        \
    {                                                                                                                  \
        "", NULL, heading, KVB_OPTION_FLAG, 0, 0, 0, NULL                                                              \
    }

/* An option of the form `--set KEY=VALUE` (a flag: `--set KEY`). For one version `--KEY VALUE` works too, with a note. */
typedef struct kvb_knob {
    kvb_option option;  /* named "--KEY" */
    const char *usual;  /* default value; NULL: 0 */
    const char *reader; /* the part of the program that uses it */
} kvb_knob;

typedef struct kvb_command {
    const char *name;          /* "run" */
    const char *summary;       /* one line for `kvbench --help` */
    const char *synopsis;      /* "[options]" */
    const char *about;         /* description and examples, several lines */
    const kvb_option *options; /* ends with name NULL */
    const kvb_knob *knobs;     /* ends with name NULL; or NULL: no --set */
    size_t knobs_at;           /* offset of the struct with their values */
    size_t words;              /* offset of the kvb_words for words that are no options */
    bool takes_words;          /* the command takes such words, also "--", which separates two lists */
    size_t bytes;              /* of the struct with the options' values */
    const void *usual;         /* such a struct with default values; NULL: all are 0. Knobs have their own defaults. */
    int (*run)(void *options, int argc, char **argv); /* argv[0] is the command's name; returns an exit code */
} kvb_command;

extern const kvb_command kvb_command_run, kvb_command_list, kvb_command_show, kvb_command_record, kvb_command_machine,
    kvb_command_check, kvb_command_compare, kvb_command_merge, kvb_command_report, kvb_command_size, kvb_command_faults,
    kvb_command_tune, kvb_command_bench, kvb_command_judge, kvb_command_engine;

/* Parses the options, runs the command, and frees the options' struct and the lists of words in it. An exit code. */
int kvb_command_call(const kvb_command *command, int argc, char **argv);

/* A growing list of words, followed by NULL. Zero at first. */
typedef struct kvb_words {
    const char **at; /* pointers into argv */
    size_t n;
} kvb_words;
int kvb_words_add(kvb_words *words, const char *word); /* 0 or -ENOMEM */
void kvb_words_free(kvb_words *words);
/* Does one of the words, as a glob, match the name? No words: true. */
bool kvb_words_match(const kvb_words *words, const char *name);

/* Stores the default values in the knobs' struct `into`, which is zero. */
void kvb_knobs_set_usual(const kvb_knob *knobs, void *into);

/* Stores the typed values in the caller's struct `into`, where knobs already have their defaults. Returns -1 to go on, or
 * the exit code to return (help: 0; bad usage, with a line on stderr: 2). */
int kvb_options_parse(const kvb_command *command, void *into, int argc, char **argv);

/* Parses a whole number of min .. max: decimal, with an optional suffix k, M, G (binary). 0 or -EINVAL with why. */
int kvb_number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *number, char *why, size_t why_bytes);

/* Prints "kvbench COMMAND: text" as one line on stderr and returns exit_code. command NULL: the command that runs. */
int kvb_complain(const char *command, int exit_code, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define kvb_refuse(...) kvb_complain(NULL, KVB_EXIT_USAGE, __VA_ARGS__) /* bad usage or input */
/* The same for a negative errno: why, or what the errno says if that is "". KVB_EXIT_USAGE if it is -EINVAL, else
 * KVB_EXIT_MACHINE. -EINTR after a signal ends the program. */
int kvb_fail(int error, const char *why);

/*
 * Errors of standard output are handled in two places. kvb_printed turns the result of a function that printed, 0 or a
 * negative errno, into an exit code; it ignores -EIO. kvb_output_end is called once, at the end of the program: it
 * returns exit_code, or complains and returns KVB_EXIT_MACHINE if output was lost. A reader that closed its pipe, such as
 * head, is no error.
 */
int kvb_printed(const char *command, int error);
int kvb_output_end(const char *command, int exit_code);

/* Complains about an unknown name as kvb_name_unknown does. Returns KVB_EXIT_USAGE. */
int kvb_unknown(const char *command, const char *what, const char *typed, const char *known);

/* Adds thread counts to list [room]: "1", "1-4", "all" (every core), separated by commas. 0, or -EINVAL with why: no
 * number, more than `most`, a number twice, or no room. */
int kvb_thread_counts_parse(const char *text, uint32_t most, uint32_t *list, size_t room, size_t *n, char *why,
                            size_t why_bytes);

/* The command, quoted for a shell and cut to fit: "kvbench run --suite quick --cache '*'". */
void kvb_command_text(int argc, char **argv, char *text, size_t bytes);

/* Appends the words of argv [argc], which kvb_options_parse took, each quoted for a shell. The options `names` (ends with
 * NULL) and their values are left out. False: the words do not fit. */
bool kvb_command_without(const kvb_command *command, const char *const *names, int argc, char **argv, char *text,
                         size_t bytes);

/* Is the option or knob of this name among the words? */
bool kvb_command_has(const kvb_command *command, const char *name, int argc, char **argv);

/* Letters to insert, remove or change between what was typed and a name, without regard to case. 0 if the name contains
 * what was typed. */
uint32_t kvb_name_distance(const char *typed, const char *name);

/* Writes "WHAT 'typed'; did you mean 'seq'? known: slab, seq, tree" into why, with the question only if a name is near.
 * known: names separated by commas or spaces; text after a ';' is shown but holds no names. Returns -EINVAL. */
int kvb_name_unknown(const char *what, const char *typed, const char *known, char *why, size_t why_bytes);

#endif
