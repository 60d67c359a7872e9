# The kernels' sources and flags, for every program that holds them: the extension module and the stand-alone
# check in tests/engine/kernels/native. Each instruction set is one source file with its own flags; the rest is
# compiled for the baseline, and isa.cpp picks at run time.

# The kernels use vector types, __builtin_shufflevector (GCC 12) and, on x86, _Float16 (GCC 12, Clang 15).
set(compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang"
   OR (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
   OR (CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  message(FATAL_ERROR "Stoker's kernels need GCC 12 or Clang 15, this is ${compiler}\n"
                      "(Windows: the ClangCL toolset of Visual Studio, -T ClangCL)")
endif()
find_package(Threads REQUIRED)
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)  # with gguf and numpy, for make_grids.py

function(stoker_kernels target)
  set(here ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  # The arithmetic contract: every operation rounds on its own, no contraction, nothing reordered.
  set(strict -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math -Wall -Wextra)
  set(kernel_flags ${strict} -Wno-psabi -Wno-ignored-attributes)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND kernel_flags -Wno-maybe-uninitialized -Wno-uninitialized)  # GCC 12 warns inside its own intrinsics
  endif()

  # The codebooks of the IQ formats, from the gguf package's data.
  set(grids ${CMAKE_CURRENT_BINARY_DIR}/grids.h)
  add_custom_command(OUTPUT ${grids} COMMAND ${Python_EXECUTABLE} ${here}/make_grids.py ${grids}
                     DEPENDS ${here}/make_grids.py ${here}/../../gguf/codebooks.py VERBATIM)
  target_sources(${target} PRIVATE ${grids})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})

  set(isas scalar)
  set(flags_scalar -O2)  # compiles in a sixth of the time of -O3
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    list(APPEND isas avx2 avxvnni avx512 avx512vnni)
    set(flags_avx2 -mavx2 -mf16c)
    set(flags_avxvnni ${flags_avx2} -mavxvnni)
    set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
    set(flags_avx512vnni ${flags_avx512} -mavx512vnni -mavx512vbmi -mgfni)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    list(APPEND isas neon neondot)
    set(flags_neondot -march=armv8.2-a+dotprod)
  endif()
  set(prefix "")
  if(MSVC)  # clang-cl ignores -ffp-contract and takes -Wall for every warning, unless they are marked as Clang's
    set(prefix "/clang:")
  endif()
  foreach(isa ${isas})
    set(flags ${kernel_flags} ${flags_${isa}})
    list(TRANSFORM flags PREPEND "${prefix}")
    target_sources(${target} PRIVATE ${here}/isa/${isa}.cpp)
    set_property(SOURCE ${here}/isa/${isa}.cpp APPEND PROPERTY COMPILE_OPTIONS ${flags})
  endforeach()
  target_sources(${target} PRIVATE ${here}/engine.cpp ${here}/sequence.cpp ${here}/sparse.cpp
                 ${here}/logits.cpp ${here}/pool.cpp ${here}/isa.cpp)
  target_include_directories(${target} PRIVATE ${here})
  list(TRANSFORM strict PREPEND "${prefix}")
  target_compile_options(${target} PRIVATE ${strict})
  target_link_libraries(${target} PRIVATE Threads::Threads)
endfunction()
