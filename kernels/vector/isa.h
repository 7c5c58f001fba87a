/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sources of this folder are compiled once for each level of kernels/cpu.h (the Makefile says which, with
 * -DKVB_ISA=name and the compiler's flags); their public names carry the level: KVB_ISA_NAME(f) is f_avx2.
 * Without KVB_ISA, portable. Callers outside reach them through the tables of table.h.
 */
#ifndef KVB_VECTOR_ISA_H
#define KVB_VECTOR_ISA_H

#ifndef KVB_ISA
#define KVB_ISA portable
#endif
#define KVB_ISA_JOIN(name, isa)  name##_##isa
#define KVB_ISA_JOIN_(name, isa) KVB_ISA_JOIN(name, isa)
#define KVB_ISA_NAME(name)       KVB_ISA_JOIN_(name, KVB_ISA)

#endif
