% Smets and Wouters (2007), equations 1 to 14 in logarithms around balanced growth, at the posterior
% mode of the authors' replication files. The economy is written twice: with sticky prices and wages,
% and without (_f), whose output is potential output.
%
% As in those files and unlike in print: b is the risk premium times -c3, the investment shock enters
% capital without the factor 1 + beta gamma^(1 - sigma_c), and rho_ga is not bounded by one.

@#define economies = ["", "_f"]
@#define processes = ["a", "b", "g", "i", "r", "p", "w"]

var dy dc di dw hours inflation rate          % what is observed, in per cent
    mu_p mu_w
@#for f in economies
    y@{f} c@{f} i@{f} q@{f} ks@{f} z@{f} k@{f} rk@{f} l@{f} w@{f} real@{f}
@#endfor
    pi r own_p own_w
@#for s in processes
    e_@{s}
@#endfor
;

varexo
@#for s in processes
    eta_@{s}
@#endfor
;

parameters
    delta phi_w share_g eps_p eps_w                       % fixed
    phi sigma_c habit xi_w sigma_l xi_p iota_w iota_p psi Phi
    r_pi rho r_y r_dy pi_bar beta_bar l_bar gamma_bar rho_ga alpha
    mu_1p mu_1w
@#for s in processes
    rho_@{s} sigma_@{s}
@#endfor
;

delta = 0.025;  phi_w = 1.5;  share_g = 0.18;  eps_p = 10;  eps_w = 10;

sigma_a = 0.45178828166212176;  rho_a = 0.9587740953362461;
sigma_b = 0.24246070101377046;  rho_b = 0.18243934512556007;
sigma_g = 0.5200103192082884;   rho_g = 0.9761614150464989;
sigma_i = 0.45010690608083065;  rho_i = 0.7095693238736019;
sigma_r = 0.23983932548400175;  rho_r = 0.1271314763130675;
sigma_p = 0.141123850778673;    rho_p = 0.9038073405580113;
sigma_w = 0.24439160123349973;  rho_w = 0.9718537740244471;
mu_1p = 0.7448718466831306;     mu_1w = 0.8881459266182488;

phi = 5.488197009060616;        % adjusting investment
sigma_c = 1.3951928979514387;   % risk aversion
habit = 0.7124006351787524;
xi_w = 0.737541323772002;       % wages that stay
sigma_l = 1.9198838416864004;   % inverse elasticity of labour
xi_p = 0.6562662602975502;      % prices that stay
iota_w = 0.5919983094973862;    % indexation
iota_p = 0.22835401911534914;
psi = 0.5472131292389921;       % utilising capital
Phi = 1.6149795879763305;       % one and the share of fixed costs
r_pi = 2.029467403441132;
rho = 0.8153248720213849;
r_y = 0.08468690532858184;
r_dy = 0.22292570806394757;
pi_bar = 0.8179822205381722;    % per cent a quarter
beta_bar = 0.16065411471321542; % 100 (1/beta - 1)
l_bar = -0.10306516698580762;
gamma_bar = 0.43202637481051603;
rho_ga = 0.5261212194708431;    % of technology on spending
alpha = 0.19280045641815527;

model(linear);
  % the steady state
  #gamma = 1 + gamma_bar / 100;
  #discount = gamma^(-sigma_c) / (1 + beta_bar / 100);
  #ahead = discount * gamma;                  % beta gamma^(1 - sigma_c)
  #rental = 1 / discount - 1 + delta;
  #wage = (alpha^alpha * (1 - alpha)^(1 - alpha) / (Phi * rental^alpha))^(1 / (1 - alpha));
  #k_y = Phi * ((1 - alpha) / alpha * rental / wage)^(alpha - 1);
  #k1 = (1 - delta) / gamma;
  #i_y = (gamma - 1 + delta) * k_y;
  #c_y = 1 - share_g - i_y;
  #wl_c = (1 - alpha) / alpha * rental * k_y / (phi_w * c_y);

  % coefficients, with the names in print
  #h = habit / gamma;
  #c1 = h / (1 + h);
  #c2 = (sigma_c - 1) * wl_c / (sigma_c * (1 + h));
  #c3 = (1 - h) / (sigma_c * (1 + h));
  #i1 = 1 / (1 + ahead);
  #i2 = i1 / (gamma^2 * phi);
  #q1 = (1 - delta) * discount;
  #z1 = (1 - psi) / psi;
  #k2 = (1 - k1) * gamma^2 * phi;
  #pi0 = 1 / (1 + ahead * iota_p);
  #pi3 = pi0 * (1 - ahead * xi_p) * (1 - xi_p) / (xi_p * ((Phi - 1) * eps_p + 1));
  #w1 = 1 / (1 + ahead);
  #w4 = w1 * (1 - ahead * xi_w) * (1 - xi_w) / (xi_w * ((phi_w - 1) * eps_w + 1));

@#for f in economies
  [name = 'resources@{f}']   y@{f} = c_y * c@{f} + i_y * i@{f} + rental * k_y * z@{f} + e_g;
  [name = 'consumption@{f}'] c@{f} = c1 * c@{f}(-1) + (1 - c1) * c@{f}(+1)
                                     + c2 * (l@{f} - l@{f}(+1)) - c3 * real@{f} + e_b;
  [name = 'investment@{f}']  i@{f} = i1 * i@{f}(-1) + (1 - i1) * i@{f}(+1) + i2 * q@{f} + e_i;
  [name = 'capital price@{f}'] q@{f} = q1 * q@{f}(+1) + (1 - q1) * rk@{f}(+1) - real@{f} + e_b / c3;
  [name = 'production@{f}']  y@{f} = Phi * (alpha * ks@{f} + (1 - alpha) * l@{f} + e_a);
  [name = 'services@{f}']    ks@{f} = k@{f}(-1) + z@{f};
  [name = 'utilisation@{f}'] z@{f} = z1 * rk@{f};
  [name = 'capital@{f}']     k@{f} = k1 * k@{f}(-1) + (1 - k1) * i@{f} + k2 * e_i;
  [name = 'rental rate@{f}'] rk@{f} = w@{f} + l@{f} - ks@{f};
@#endfor

  [name = 'price markup'] mu_p = alpha * (ks - l) + e_a - w;
  [name = 'wage markup']  mu_w = w - sigma_l * l - (c - h * c(-1)) / (1 - h);
  [name = 'price markup_f'] 0 = alpha * (ks_f - l_f) + e_a - w_f;
  [name = 'wage markup_f']  0 = w_f - sigma_l * l_f - (c_f - h * c_f(-1)) / (1 - h);
  [name = 'prices'] pi = pi0 * (iota_p * pi(-1) + ahead * pi(+1)) - pi3 * mu_p + e_p;
  [name = 'wages']  w = w1 * w(-1) + (1 - w1) * (w(+1) + pi(+1)) - w1 * (1 + ahead * iota_w) * pi
                        + w1 * iota_w * pi(-1) - w4 * mu_w + e_w;
  [name = 'real rate'] real = r - pi(+1);
  [name = 'policy'] r = rho * r(-1) + (1 - rho) * (r_pi * pi + r_y * (y - y_f))
                        + r_dy * (y - y_f - y(-1) + y_f(-1)) + e_r;

@#for s in ["a", "b", "i", "r"]
  e_@{s} = rho_@{s} * e_@{s}(-1) + sigma_@{s} * eta_@{s};
@#endfor
  e_g = rho_g * e_g(-1) + sigma_g * eta_g + rho_ga * sigma_a * eta_a;
@#for s in ["p", "w"]
  own_@{s} = sigma_@{s} * eta_@{s};
  e_@{s} = rho_@{s} * e_@{s}(-1) + own_@{s} - mu_1@{s} * own_@{s}(-1);
@#endfor

@#for v in ["y", "c", "i", "w"]
  d@{v} = @{v} - @{v}(-1) + gamma_bar;
@#endfor
  hours = l + l_bar;
  inflation = pi + pi_bar;
  rate = r + 100 * ((1 + pi_bar / 100) / discount - 1);
end;

steady_state_model;
  dy = gamma_bar;  dc = gamma_bar;  di = gamma_bar;  dw = gamma_bar;
  hours = l_bar;   inflation = pi_bar;
  rate = 100 * ((1 + pi_bar / 100) * (1 + beta_bar / 100) * (1 + gamma_bar / 100)^sigma_c - 1);
  mu_p = 0;  mu_w = 0;  pi = 0;  r = 0;  own_p = 0;  own_w = 0;
@#for f in economies
  y@{f} = 0;   c@{f} = 0;  i@{f} = 0;   q@{f} = 0;  ks@{f} = 0;  z@{f} = 0;
  k@{f} = 0;   rk@{f} = 0;  l@{f} = 0;  w@{f} = 0;  real@{f} = 0;
@#endfor
@#for s in processes
  e_@{s} = 0;
@#endfor
end;

shocks;
@#for s in processes
  var eta_@{s} = 1;
@#endfor
end;

varobs dy dc di hours inflation dw rate;
