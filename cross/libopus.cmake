# How CMake compiles libopus for a target of `cross/build`, which sets the variables below; the crate `opusic-sys` runs CMake.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $ENV{EDGE_RUNNER_PROCESSOR})
set(CMAKE_C_COMPILER $ENV{EDGE_RUNNER_CC})
set(CMAKE_AR $ENV{EDGE_RUNNER_AR})
set(CMAKE_RANLIB $ENV{EDGE_RUNNER_RANLIB})
# Messages of assertions name files of the library without the folder of this machine.
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=opus)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL armv7)
  # The library calls these files where the board has NEON, and compiles them like all others, which fails without NEON.
  set_source_files_properties(celt/arm/celt_neon_intr.c celt/arm/pitch_neon_intr.c silk/arm/biquad_alt_neon_intr.c
    silk/arm/LPC_inv_pred_gain_neon_intr.c silk/arm/NSQ_del_dec_neon_intr.c silk/arm/NSQ_neon.c
    PROPERTIES COMPILE_OPTIONS -mfpu=neon)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL armv6)
  # The oldest boards have no NEON.
  set(OPUS_DISABLE_INTRINSICS ON CACHE BOOL "" FORCE)
endif()
