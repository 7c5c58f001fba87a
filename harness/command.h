/* SPDX-License-Identifier: Apache-2.0 */
/* A command of the program: `kvbench NAME …`. Exit codes are the same for all. */
#ifndef KVB_COMMAND_H
#define KVB_COMMAND_H

enum {
    KVB_EXIT_OK = 0,      /* all good */
    KVB_EXIT_FAILED = 1,  /* a check failed */
    KVB_EXIT_USAGE = 2,   /* bad usage or bad input */
    KVB_EXIT_MACHINE = 3, /* this machine cannot do it */
};

typedef struct kvb_command {
    const char *name;
    const char *summary;               /* one line for `kvbench --help` */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns an exit code */
} kvb_command;

extern const kvb_command kvb_command_run, kvb_command_list, kvb_command_show, kvb_command_record, kvb_command_machine,
    kvb_command_compare, kvb_command_merge, kvb_command_report, kvb_command_size;

#endif
